// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package autoscaler

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"lab.invalid/sim/machineapi"
)

// The annotations, labels and resources that the autoscaler reads.
const (
	Prefix           = "capacity.cluster-autoscaler.kubernetes.io/"
	OldPrefix        = "machine.openshift.io/"
	MinAnnotation    = "machine.openshift.io/cluster-api-autoscaler-node-group-min-size"
	MaxAnnotation    = "machine.openshift.io/cluster-api-autoscaler-node-group-max-size"
	DeleteAnnotation = "machine.openshift.io/delete-machine"
	// Since it is read by releases whose Machine API does not know the newer annotation.
	OldDeleteAnnotation = "machine.openshift.io/cluster-api-delete-machine"
	Accelerator         = "cluster-api/accelerator"

	nvidiaGPU      = "nvidia.com/gpu"
	defaultMaxPods = 110
)

// Group is a MachineSet that the autoscaler can scale.
type Group struct {
	Name     string
	Min, Max int
	Replicas int
	// Template is the node that the MachineSet describes; nil if it cannot be scaled from zero.
	Template *corev1.Node
}

// NewGroup returns the node group of a MachineSet, or the reason why the autoscaler ignores it.
func NewGroup(set *machineapi.MachineSet, rules Rules) (*Group, string) {
	group := &Group{Name: set.Name}
	if set.Spec.Replicas != nil {
		group.Replicas = int(*set.Spec.Replicas)
	}
	for key, value := range map[string]*int{MinAnnotation: &group.Min, MaxAnnotation: &group.Max} {
		text, present := set.Annotations[key]
		if !present {
			continue
		}
		number, err := strconv.Atoi(text)
		if err != nil || number < 0 {
			return nil, fmt.Sprintf("annotation %s is not a number: %q", key, text)
		}
		*value = number
	}
	if group.Max < group.Min {
		return nil, "the annotation of the maximum size is smaller than that of the minimum size"
	}
	if group.Max == 0 || (group.Max == group.Min && !rules.FixedSize) {
		return nil, "no scaling capacity: no MachineAutoscaler, or one without a range"
	}
	capacity, err := Capacity(set.Annotations, rules)
	if err == nil && has(capacity, corev1.ResourceCPU) && has(capacity, corev1.ResourceMemory) {
		group.Template = templateNode(set, capacity, rules)
	}
	if group.Replicas == 0 && group.Template == nil {
		if err != nil {
			return nil, err.Error()
		}
		return nil, "annotations for cpu and memory are missing, so that it cannot be scaled from zero"
	}
	return group, ""
}

// Capacity returns the resources of a future node from a MachineSet's annotations.
func Capacity(annotations map[string]string, rules Rules) (corev1.ResourceList, error) {
	found := corev1.ResourceList{}
	cpu, err := read(annotations, rules, "cpu", "vCPU", resource.ParseQuantity, resource.ParseQuantity)
	if err != nil {
		return nil, err
	}
	memory, err := read(annotations, rules, "memory", "memoryMb", resource.ParseQuantity, mebibytes)
	if err != nil {
		return nil, err
	}
	gpus, err := read(annotations, rules, "gpu-count", "GPU", integer, integer)
	if err != nil {
		return nil, err
	}
	pods, err := read(annotations, rules, "maxPods", "maxPods", integer, integer)
	if err != nil {
		return nil, err
	}
	disk, err := read(annotations, Rules{NewKeys: true}, "ephemeral-disk", "", resource.ParseQuantity, nil)
	if err != nil {
		return nil, err
	}
	if pods == nil || pods.IsZero() {
		pods = resource.NewQuantity(defaultMaxPods, resource.DecimalSI)
	}
	name := corev1.ResourceName(nvidiaGPU)
	if rules.Upstream {
		name = corev1.ResourceName(annotations[Prefix+"gpu-type"])
	}
	for name, quantity := range map[corev1.ResourceName]*resource.Quantity{
		corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory, corev1.ResourceEphemeralStorage: disk, name: gpus, corev1.ResourcePods: pods,
	} {
		if name != "" && quantity != nil && !quantity.IsZero() {
			found[name] = *quantity
		}
	}
	return found, nil
}

type parser func(string) (resource.Quantity, error)

// read returns the value of the new annotation, else that of the old one, or nil. A number that is 0 counts as set: only the
// quantity "0", which the real one compares with its default, does not.
func read(annotations map[string]string, rules Rules, key, old string, parse, parseOld parser) (*resource.Quantity, error) {
	for _, one := range []struct {
		read  bool
		key   string
		parse parser
	}{{rules.NewKeys, Prefix + key, parse}, {rules.OldKeys, OldPrefix + old, parseOld}} {
		text := annotations[one.key]
		if !one.read || text == "" || (text == "0" && (key == "cpu" || key == "memory")) {
			continue
		}
		quantity, err := one.parse(text)
		if err != nil {
			return nil, fmt.Errorf("invalid value %q of annotation %s", text, one.key)
		}
		return &quantity, nil
	}
	return nil, nil
}

func integer(text string) (resource.Quantity, error) {
	number, err := strconv.ParseInt(text, 10, 0)
	return *resource.NewQuantity(number, resource.DecimalSI), err
}

func mebibytes(text string) (resource.Quantity, error) {
	number, err := strconv.ParseInt(text, 10, 0)
	return *resource.NewQuantity(number<<20, resource.BinarySI), err
}

func templateNode(set *machineapi.MachineSet, capacity corev1.ResourceList, rules Rules) *corev1.Node {
	name := set.Name + "-template"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux", corev1.LabelHostname: name,
	}}}
	for key, value := range set.Spec.Template.Spec.Metadata.Labels {
		if !rules.Upstream || isManagedLabel(key) {
			node.Labels[key] = value
		}
	}
	maps.Copy(node.Labels, LabelsAnnotation(set.Annotations))
	node.Spec.Taints = slices.Clone(set.Spec.Template.Spec.Taints)
	for _, text := range strings.Split(set.Annotations[Prefix+"taints"], ",") {
		taint, valid := parseTaint(text)
		if !valid {
			continue
		}
		same := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taint.Key && t.Effect == taint.Effect })
		if same >= 0 && rules.Upstream {
			node.Spec.Taints[same] = taint
		} else {
			node.Spec.Taints = append(node.Spec.Taints, taint)
		}
	}
	node.Status.Capacity, node.Status.Allocatable = capacity, capacity
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return node
}

// LabelsAnnotation returns the labels in the annotation of a MachineSet.
func LabelsAnnotation(annotations map[string]string) map[string]string {
	found := map[string]string{}
	for _, pair := range strings.Split(annotations[Prefix+"labels"], ",") {
		if key, value, has := strings.Cut(pair, "="); has {
			found[key] = value
		}
	}
	return found
}

func isManagedLabel(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	for _, managed := range []string{"node-restriction.kubernetes.io", "node.cluster.x-k8s.io"} {
		if domain == managed || strings.HasSuffix(domain, "."+managed) {
			return true
		}
	}
	return domain == "node-role.kubernetes.io"
}

func parseTaint(text string) (corev1.Taint, bool) {
	parts := strings.Split(text, ":")
	if len(parts) > 2 {
		return corev1.Taint{}, false
	}
	pair := strings.Split(parts[0], "=")
	taint := corev1.Taint{Key: pair[0]}
	if len(parts) == 2 {
		taint.Effect = corev1.TaintEffect(parts[1])
		if len(pair) == 2 {
			taint.Value = pair[1]
		}
	}
	valid := len(pair) <= 2 && len(validation.IsQualifiedName(taint.Key)) == 0 && len(validation.IsValidLabelValue(taint.Value)) == 0
	return taint, valid
}

func has(list corev1.ResourceList, name corev1.ResourceName) bool {
	_, there := list[name]
	return there
}
