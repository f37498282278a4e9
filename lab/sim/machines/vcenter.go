// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package machines

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"lab.invalid/sim/autoscaler"
	"lab.invalid/sim/machineapi"
	"lab.invalid/sim/rules"
)

const (
	vsphereProvider = "vsphere://"
	// offAnnotation marks a node whose VM is off, or has not booted yet.
	offAnnotation = "lab.accel.gpu/vm-off"
	// linkTime is how long a new node waits for the labels and taints of its Machine, if the nodelink controller does not write them.
	linkTime = 5 * time.Second
)

// virtualMachine is a VM as the simulated vCenter saves it (lab/vcsim/state.go).
type virtualMachine struct {
	Name     string `json:"name"`
	Pool     string `json:"pool"`
	Template bool   `json:"template"`
	Running  bool   `json:"running"`
	Config   struct {
		UUID     string `json:"uuid"`
		Hardware struct {
			NumCPU   int64 `json:"numCPU"`
			MemoryMB int64 `json:"memoryMB"`
			Device   []struct {
				Backing struct {
					VGPU string `json:"vgpu"`
				} `json:"backing"`
			} `json:"device"`
		} `json:"hardware"`
		ExtraConfig []struct {
			Key   string `json:"key"`
			Value any    `json:"value"`
		} `json:"extraConfig"`
	} `json:"config"`
}

// vCenter turns the running VMs of OpenShift's own controllers into nodes.
type vCenter struct {
	path  string
	state os.FileInfo
	all   []virtualMachine
	// started is when a VM was first seen running; joined contains those that have become nodes, which do not register again after
	// their nodes are deleted.
	started map[string]time.Time
	joined  map[string]bool
}

func newVCenter(path string) *vCenter {
	return &vCenter{path: path, started: map[string]time.Time{}, joined: map[string]bool{}}
}

// read returns the VMs; the file is read again only after a change.
func (v *vCenter) read() ([]virtualMachine, error) {
	state, err := os.Stat(v.path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if v.state != nil && os.SameFile(v.state, state) && v.state.ModTime().Equal(state.ModTime()) {
		return v.all, nil
	}
	content, err := os.ReadFile(v.path)
	if err != nil {
		return nil, err
	}
	var all []virtualMachine
	if err := json.Unmarshal(content, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", v.path, err)
	}
	v.all, v.state = all, state
	return all, nil
}

// hostname returns the name that ignition gives the machine; only VMs of the Machine API have one.
func (vm *virtualMachine) hostname() string {
	for _, one := range vm.Config.ExtraConfig {
		if one.Key != "guestinfo.hostname" {
			continue
		}
		switch value := one.Value.(type) {
		case string:
			return value
		case map[string]any:
			found, _ := value["_value"].(string)
			return found
		}
	}
	return ""
}

func (vm *virtualMachine) providerID() string {
	return vsphereProvider + strings.ToLower(vm.Config.UUID)
}

// vgpus returns the profile of the VM's first vGPU, and the number of its vGPUs.
func (vm *virtualMachine) vgpus() (string, int) {
	profile, count := "", 0
	for _, one := range vm.Config.Hardware.Device {
		if one.Backing.VGPU != "" {
			count++
			if profile == "" {
				profile = one.Backing.VGPU
			}
		}
	}
	return profile, count
}

// instanceOf returns the hardware of a VM.
func (c *Cloud) instanceOf(vm *virtualMachine) (instance, error) {
	found := instance{region: c.Region}
	if profile, count := vm.vgpus(); count > 0 {
		found.name = fmt.Sprintf("%sx%d", profile, count)
	}
	kind, known := c.Types[found.name]
	if !known {
		return found, fmt.Errorf("VM %s: the lab has no node with the vGPUs %s", vm.Name, found.name)
	}
	found.Type = kind
	found.CPUs, found.MemoryMiB = vm.Config.Hardware.NumCPU, vm.Config.Hardware.MemoryMB
	for zone, pool := range c.Zones {
		if vm.Pool == pool || strings.HasPrefix(vm.Pool, pool+"/") {
			found.zone = zone
		}
	}
	return found, nil
}

// reconcileVirtualMachines creates the nodes of VMs that have booted, and stops those of VMs that are off or gone.
func (s *Simulator) reconcileVirtualMachines(ctx context.Context, settings *settings) error {
	all, err := s.vcenter.read()
	if err != nil {
		return err
	}
	running := map[string]bool{}
	for number := range all {
		vm := &all[number]
		if !vm.Template && vm.Running && vm.hostname() != "" {
			running[vm.providerID()] = true
			s.report(ctx, s.reconcileVirtualMachine(ctx, vm, settings))
		}
	}
	for id := range s.vcenter.started {
		if !running[id] {
			delete(s.vcenter.started, id)
			delete(s.vcenter.joined, id)
		}
	}
	for _, one := range s.nodes.GetStore().List() {
		node := one.(*corev1.Node)
		if strings.HasPrefix(node.Spec.ProviderID, vsphereProvider) && !running[node.Spec.ProviderID] && node.Annotations[offAnnotation] == "" {
			faults := rules.AddFault(node.Annotations[faultsAnnotation], rules.NodeNotReady)
			s.report(ctx, s.patchNode(ctx, node.Name, object{"metadata": object{"annotations": object{faultsAnnotation: faults, offAnnotation: "true"}}}))
		}
	}
	return nil
}

func (s *Simulator) reconcileVirtualMachine(ctx context.Context, vm *virtualMachine, settings *settings) error {
	id, name := vm.providerID(), vm.hostname()
	if _, known := s.vcenter.started[id]; !known {
		s.vcenter.started[id] = time.Now()
	}
	booted := time.Since(s.vcenter.started[id]) >= s.scaled(settings.seconds("boot-seconds", bootTime))
	one, exists, err := s.nodes.GetStore().GetByKey(name)
	if err != nil {
		return err
	}
	if !exists {
		if _, never := settings.fault(neverJoins, s.setOf(name)); never || !booted || s.vcenter.joined[id] {
			return nil
		}
		return s.register(ctx, vm)
	}
	node := one.(*corev1.Node)
	if node.Spec.ProviderID != id {
		return nil // the node of an older VM with this name
	}
	s.vcenter.joined[id] = true
	_, linked := node.Annotations[autoscaler.MachineAnnotation]
	if node.Annotations[offAnnotation] == "" || !booted || !linked && time.Since(node.CreationTimestamp.Time) < linkTime {
		return nil
	}
	faults := rules.RemoveFault(node.Annotations[faultsAnnotation], rules.NodeNotReady)
	return s.patchNode(ctx, node.Name, object{"metadata": object{"annotations": object{faultsAnnotation: faults, offAnnotation: nil}}})
}

// register creates the node of a VM, as its kubelet and the cloud's controller manager do. It is not ready until the nodelink controller has
// written the labels and taints of its Machine.
func (s *Simulator) register(ctx context.Context, vm *virtualMachine) error {
	found, err := s.options.Cloud.instanceOf(vm)
	if err != nil {
		return err
	}
	name := vm.hostname()
	machine := &machineapi.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(vm.Config.UUID)}}
	machine.Spec.ProviderID = vm.providerID()
	machine.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address(name)}, {Type: corev1.NodeHostName, Address: name}}
	node := s.newNode(machine, found)
	node.Annotations[offAnnotation] = "true"
	_, err = s.core.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err == nil {
		klog.InfoS("a virtual machine is a node", "node", name)
		s.vcenter.joined[vm.providerID()] = true
	}
	return err
}

// setOf returns the MachineSet of a Machine.
func (s *Simulator) setOf(machine string) string {
	one, exists, err := s.machines.GetStore().GetByKey(machineapi.Namespace + "/" + machine)
	if err != nil || !exists {
		return ""
	}
	return ownerSet(one.(*machineapi.Machine))
}
