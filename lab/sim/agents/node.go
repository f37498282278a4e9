// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"lab.invalid/sim/rules"
)

// rebootAnnotation is set on a rebooting node, which kwok therefore makes NotReady. A reboot request sets it to a unique
// text; the simulator sets it to the end of the reboot, in Unix milliseconds.
const rebootAnnotation = labAnnotations + "rebooting"

// hungAnnotation identifies the MIG manager process that a fault has hung: the UID of its pod and the boot ID.
const hungAnnotation = labAnnotations + "mig-watch-hung"

// Node contains the fields of a node that the simulator needs.
type Node struct {
	metav1.ObjectMeta
	Hardware      *rules.Hardware
	OS            rules.OS
	Containerd    *rules.Containerd
	Faults        rules.Faults
	Config        string
	MIGConfig     string
	MIGState      string
	Deploy        map[string]string
	Layout        rules.Layout
	Driver        string
	DriverConfig  string
	License       string
	AutoUpgrade   bool
	Cordoned      bool
	HungProcess   string
	BootID        string
	RebootRequest string
	Rebooting     time.Time
	Kernel        string
	Ready         bool
	Capacity      map[string]int64
	Allocatable   map[string]int64
}

// trimNode is the informer's transform, which reduces memory for thousands of nodes.
func trimNode(object any) (any, error) {
	n, isNode := object.(*corev1.Node)
	if !isNode {
		return object, nil
	}
	layout, err := rules.ParseLayout(n.Annotations[rules.MIGAnnotation])
	if err != nil {
		klog.ErrorS(err, "ignoring invalid MIG state of node", "node", n.Name)
	}
	os, err := rules.ParseOS(n.Annotations[rules.OSAnnotation])
	if err != nil {
		klog.ErrorS(err, "ignoring invalid operating system of node", "node", n.Name)
	}
	containerd, err := rules.ParseContainerd(n.Annotations[rules.ContainerdAnnotation])
	if err != nil {
		klog.ErrorS(err, "ignoring invalid containerd of node", "node", n.Name)
	}
	node := &Node{ObjectMeta: trimMeta(n.ObjectMeta), Hardware: hardwareOf(n), OS: os, Containerd: containerd, MIGConfig: n.Labels[rules.MIGConfigLabel], MIGState: n.Labels[rules.MIGStateLabel],
		Deploy: map[string]string{}, Layout: layout, Kernel: n.Status.NodeInfo.KernelVersion, Config: n.Labels[configLabel],
		Driver: n.Annotations[rules.DriverAnnotation], HungProcess: n.Annotations[hungAnnotation], BootID: n.Status.NodeInfo.BootID,
		Faults: rules.ParseFaults(n.Annotations[rules.FaultsAnnotation]), Capacity: amounts(n.Status.Capacity), Allocatable: amounts(n.Status.Allocatable)}
	node.RebootRequest, node.Rebooting = rebooting(n.Annotations[rebootAnnotation])
	node.License = n.Annotations[rules.LicenseAnnotation]
	node.AutoUpgrade = n.Annotations[rules.AutoUpgradeAnnotation] == "true"
	node.DriverConfig, node.Cordoned = n.Annotations[rules.DriverConfigAnnotation], n.Spec.Unschedulable
	for _, key := range append(slices.Clone(rules.DriverLabels), rules.ClientLabel) {
		if value, there := n.Labels[key]; there {
			node.Deploy[key] = value
		}
	}
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			node.Ready = condition.Status == corev1.ConditionTrue
		}
	}
	return node, nil
}

func amounts(list corev1.ResourceList) map[string]int64 {
	found := map[string]int64{}
	for name, quantity := range list {
		if strings.HasPrefix(string(name), extended) {
			found[string(name)] = quantity.Value()
		}
	}
	return found
}

// hardwares contains each distinct hardware once, by annotation: a group can have thousands of identical machines.
var hardwares sync.Map

func hardwareOf(n *corev1.Node) *rules.Hardware {
	text := n.Annotations[rules.HardwareAnnotation]
	if known, there := hardwares.Load(text); there {
		return known.(*rules.Hardware)
	}
	hardware, err := rules.ParseHardware(text)
	if err != nil {
		klog.ErrorS(err, "ignoring invalid hardware of node", "node", n.Name)
	}
	known, _ := hardwares.LoadOrStore(text, hardware)
	return known.(*rules.Hardware)
}

// rebooting parses the annotation: the id of a reboot request, or the end of a reboot.
func rebooting(annotation string) (request string, until time.Time) {
	milliseconds, err := strconv.ParseInt(annotation, 10, 64)
	if err != nil {
		return annotation, time.Time{}
	}
	return "", time.UnixMilli(milliseconds)
}
