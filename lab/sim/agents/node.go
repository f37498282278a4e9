// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"lab.invalid/sim/rules"
)

// rebootAnnotation is on a node that reboots, which kwok therefore makes NotReady. Somebody who asks for a reboot writes a
// text of his own into it; the simulator writes until when the node is down, in Unix milliseconds.
const rebootAnnotation = labAnnotations + "rebooting"

// hungAnnotation is the process of the MIG manager that a fault has hung: its pod's UID and its boot.
const hungAnnotation = labAnnotations + "mig-watch-hung"

// Node is what the simulator keeps of a node.
type Node struct {
	metav1.ObjectMeta
	Hardware      *rules.Hardware
	OS            rules.OS
	Faults        rules.Faults
	Config        string
	MIGConfig     string
	MIGState      string
	Deploy        map[string]string
	Layout        rules.Layout
	Driver        string
	HungProcess   string
	BootID        string
	RebootRequest string
	Rebooting     time.Time
	Kernel        string
	Ready         bool
	Capacity      map[string]int64
	Allocatable   map[string]int64
}

// trimNode is the informer's transform: five thousand nodes shall cost little.
func trimNode(object any) (any, error) {
	n, isNode := object.(*corev1.Node)
	if !isNode {
		return object, nil
	}
	layout, err := rules.ParseLayout(n.Annotations[rules.MIGAnnotation])
	if err != nil {
		klog.ErrorS(err, "MIG state of node ignored", "node", n.Name)
	}
	os, err := rules.ParseOS(n.Annotations[rules.OSAnnotation])
	if err != nil {
		klog.ErrorS(err, "os of node ignored", "node", n.Name)
	}
	node := &Node{ObjectMeta: trimMeta(n.ObjectMeta), Hardware: hardwareOf(n), OS: os, MIGConfig: n.Labels[rules.MIGConfigLabel], MIGState: n.Labels[rules.MIGStateLabel],
		Deploy: map[string]string{}, Layout: layout, Kernel: n.Status.NodeInfo.KernelVersion, Config: n.Labels[configLabel],
		Driver: n.Annotations[rules.DriverAnnotation], HungProcess: n.Annotations[hungAnnotation], BootID: n.Status.NodeInfo.BootID,
		Faults: rules.ParseFaults(n.Annotations[rules.FaultsAnnotation]), Capacity: amounts(n.Status.Capacity), Allocatable: amounts(n.Status.Allocatable)}
	node.RebootRequest, node.Rebooting = rebooting(n.Annotations[rebootAnnotation])
	for _, key := range rules.DriverLabels {
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

// hardwares has each hardware once, by its annotation: machines of a group are alike, and there may be thousands.
var hardwares sync.Map

func hardwareOf(n *corev1.Node) *rules.Hardware {
	text := n.Annotations[rules.HardwareAnnotation]
	if known, there := hardwares.Load(text); there {
		return known.(*rules.Hardware)
	}
	hardware, err := rules.ParseHardware(text)
	if err != nil {
		klog.ErrorS(err, "hardware of node ignored", "node", n.Name)
	}
	known, _ := hardwares.LoadOrStore(text, hardware)
	return known.(*rules.Hardware)
}

// rebooting reads the annotation: who asks for a reboot, or until when one lasts.
func rebooting(annotation string) (asked string, until time.Time) {
	milliseconds, err := strconv.ParseInt(annotation, 10, 64)
	if err != nil {
		return annotation, time.Time{}
	}
	return "", time.UnixMilli(milliseconds)
}
