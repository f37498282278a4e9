// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package machines

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"lab.invalid/sim/autoscaler"
	"lab.invalid/sim/machineapi"
	"lab.invalid/sim/rules"
)

const (
	faultsAnnotation = "lab.accel.gpu/faults"
	// attempts is how often a node that others change at the same time is updated before it becomes ready.
	attempts   = 10
	retryAfter = 5 * time.Second
)

// nodeOf returns the node of a Machine by its provider id, or nil.
func (s *Simulator) nodeOf(machine *machineapi.Machine) *corev1.Node {
	for _, name := range nodeNames(machine) {
		object, exists, _ := s.nodes.GetStore().GetByKey(name)
		if exists && object.(*corev1.Node).Spec.ProviderID == machine.Spec.ProviderID {
			return object.(*corev1.Node)
		}
	}
	return nil
}

func nodeNames(machine *machineapi.Machine) []string {
	var found []string
	if machine.Status.NodeRef != nil {
		found = append(found, machine.Status.NodeRef.Name)
	}
	for _, one := range machine.Status.Addresses {
		if one.Type == corev1.NodeHostName {
			found = append(found, one.Address)
		}
	}
	return found
}

// join creates the node of a Machine, as its kubelet and the cloud's controller manager do. The labels and taints of the
// Machine are not the kubelet's: the node gets them before it is ready, as on real machines, which take longer.
func (s *Simulator) join(ctx context.Context, machine *machineapi.Machine) error {
	found, err := s.options.Cloud.instance(machine.Spec.ProviderSpec.Value)
	if err != nil {
		return err
	}
	node := s.newNode(machine, found)
	created, err := s.core.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for range attempts {
		if err = s.link(ctx, machine, created); !apierrors.IsConflict(err) {
			break
		}
		if created, err = s.core.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	return s.admit(ctx, created)
}

// admit lets a new node become ready.
func (s *Simulator) admit(ctx context.Context, node *corev1.Node) error {
	faults := node.Annotations[faultsAnnotation]
	if !rules.ParseFaults(faults).Has(rules.NodeNotReady) {
		return nil
	}
	return s.setFaults(ctx, node, rules.RemoveFault(faults, rules.NodeNotReady))
}

func (s *Simulator) newNode(machine *machineapi.Machine, found instance) *corev1.Node {
	node := found.Node.DeepCopy()
	node.Name = ""
	for _, one := range machine.Status.Addresses {
		if one.Type == corev1.NodeHostName {
			node.Name = one.Address
		}
	}
	digest := sha256.Sum256([]byte(machine.UID))
	node.Status.NodeInfo.MachineID = hex.EncodeToString(digest[:16])
	node.Status.NodeInfo.BootID = string(uuid.NewUUID())
	node.Labels[corev1.LabelHostname] = node.Name
	if found.zone != "" {
		node.Labels[corev1.LabelTopologyZone], node.Labels[corev1.LabelTopologyRegion] = found.zone, found.region
	}
	if s.options.VirtualMachines == "" { // VMs have no types
		node.Labels[corev1.LabelInstanceTypeStable] = found.name
	}
	// The kubelet registers as not ready; with this fault, the node remains so until it has its labels and taints.
	node.Annotations[faultsAnnotation] = rules.NodeNotReady
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			node.Status.Conditions[i].Status, node.Status.Conditions[i].Reason = corev1.ConditionFalse, "KubeletNotReady"
			node.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Now())
		}
	}
	node.Spec.ProviderID = machine.Spec.ProviderID
	node.Status.Addresses = nil
	for _, one := range machine.Status.Addresses {
		if one.Type != corev1.NodeInternalDNS {
			node.Status.Addresses = append(node.Status.Addresses, one)
		}
	}
	// The address of kwok, which simulates the kubelet: the API server prefers this address type.
	node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalDNS, Address: "localhost"})
	for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
		list[corev1.ResourceCPU] = *resource.NewQuantity(found.CPUs, resource.DecimalSI)
		list[corev1.ResourceMemory] = *resource.NewQuantity(found.MemoryMiB<<20, resource.BinarySI)
	}
	return node
}

// link is the nodelink controller: it copies labels, annotations and taints of the Machine to its node in one update, which
// the API server rejects as a whole if a label is invalid.
func (s *Simulator) link(ctx context.Context, machine *machineapi.Machine, node *corev1.Node) error {
	wanted := map[string]string{autoscaler.MachineAnnotation: machineapi.Namespace + "/" + machine.Name}
	maps.Copy(wanted, machine.Spec.Metadata.Annotations)
	taints := slices.Clone(node.Spec.Taints)
	for _, taint := range machine.Spec.Taints {
		if !slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.Key == taint.Key && t.Effect == taint.Effect }) {
			taints = append(taints, taint)
		}
	}
	if contains(node.Annotations, wanted) && contains(node.Labels, machine.Spec.Metadata.Labels) && len(taints) == len(node.Spec.Taints) {
		return nil
	}
	metadata := object{"annotations": wanted, "resourceVersion": node.ResourceVersion}
	if len(machine.Spec.Metadata.Labels) > 0 { // null would delete all labels
		metadata["labels"] = machine.Spec.Metadata.Labels
	}
	data, err := json.Marshal(object{"metadata": metadata, "spec": object{"taints": taints}})
	if err != nil || s.isRejected(machine) {
		return err
	}
	_, err = s.core.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, data, metav1.PatchOptions{})
	if apierrors.IsInvalid(err) {
		s.reject(machine)
		s.events.record(ctx, reference(machine), "nodelink-controller", corev1.EventTypeWarning, "FailedUpdate", fmt.Sprintf("error updating node: %v", err))
		return nil
	}
	return err
}

// isRejected returns whether the API server rejected the labels of a Machine a moment ago.
func (s *Simulator) isRejected(machine *machineapi.Machine) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return time.Since(s.rejected[machine.UID]) < retryAfter
}

func (s *Simulator) reject(machine *machineapi.Machine) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.rejected[machine.UID] = time.Now()
}

func contains(of, part map[string]string) bool {
	for key, value := range part {
		if found, present := of[key]; !present || found != value {
			return false
		}
	}
	return true
}

func (s *Simulator) setFaults(ctx context.Context, node *corev1.Node, faults string) error {
	return s.patchNode(ctx, node.Name, object{"metadata": object{"annotations": object{faultsAnnotation: faults}}})
}

func (s *Simulator) patchNode(ctx context.Context, name string, body object) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	_, err = s.core.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{})
	return ignoreGone(err)
}

// address returns the InternalIP of a machine, a constant that follows from its name.
func address(name string) string {
	digest := sha256.Sum256([]byte(name))
	number := binary.BigEndian.Uint32(digest[:4])
	return fmt.Sprintf("10.%d.%d.%d", 128+number>>16&127, number>>8&255, 1+number&255%254)
}
