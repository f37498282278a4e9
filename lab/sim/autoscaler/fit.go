// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package autoscaler

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/klog/v2"
)

// amounts are resources as numbers: thousandths of CPUs, and units of the others.
type amounts map[corev1.ResourceName]int64

func amountsOf(list corev1.ResourceList) amounts {
	found := amounts{}
	for name, quantity := range list {
		if name == corev1.ResourceCPU {
			found[name] = quantity.MilliValue()
		} else {
			found[name] = quantity.Value()
		}
	}
	return found
}

func (a amounts) add(more amounts) {
	for name, amount := range more {
		a[name] += amount
	}
}

// requests returns what the scheduler reserves for a pod.
func requests(pod *corev1.Pod) amounts {
	total := amounts{}
	for i := range pod.Spec.Containers {
		total.add(amountsOf(pod.Spec.Containers[i].Resources.Requests))
	}
	sidecars := amounts{}
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		needed := amountsOf(container.Resources.Requests)
		if container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			total.add(needed)
			sidecars.add(needed)
			continue
		}
		needed.add(sidecars)
		for name, amount := range needed {
			total[name] = max(total[name], amount)
		}
	}
	total.add(amountsOf(pod.Spec.Overhead))
	total[corev1.ResourcePods] = 1
	return total
}

// space is a node with its free resources.
type space struct {
	node *corev1.Node
	free amounts
}

func newSpace(node *corev1.Node, pods []*corev1.Pod) *space {
	free := amountsOf(node.Status.Allocatable)
	for _, pod := range pods {
		for name, amount := range requests(pod) {
			free[name] -= amount
		}
	}
	return &space{node, free}
}

func (s *space) copy() *space {
	return &space{s.node, maps.Clone(s.free)}
}

// place reserves the resources of a pod if it fits, or returns the reason why it does not, in the scheduler's words.
func (s *space) place(pod *corev1.Pod) string {
	if reason := reject(pod, s.node); reason != "" {
		return reason
	}
	needed := requests(pod)
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		if needed[name] > 0 && s.free[name] < needed[name] {
			if name == corev1.ResourcePods {
				return "Too many pods"
			}
			return "Insufficient " + string(name)
		}
	}
	for name, amount := range needed {
		s.free[name] -= amount
	}
	return ""
}

// reject returns the reason why a node's labels or taints exclude a pod.
func reject(pod *corev1.Pod, node *corev1.Node) string {
	if node.Spec.Unschedulable {
		return "node(s) were unschedulable"
	}
	if !selects(pod, node) {
		return "node(s) didn't match Pod's node affinity/selector"
	}
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !tolerates(pod, taint) {
			return fmt.Sprintf("node(s) had untolerated taint {%s: %s}", taint.Key, taint.Value)
		}
	}
	return ""
}

func tolerates(pod *corev1.Pod, taint *corev1.Taint) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.ToleratesTaint(klog.Logger{}, taint, false)
	})
}

func selects(pod *corev1.Pod, node *corev1.Node) bool {
	if !labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(node.Labels)) {
		return false
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	return slices.ContainsFunc(affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		return matches(term, node)
	})
}

func matches(term corev1.NodeSelectorTerm, node *corev1.Node) bool {
	if len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0 {
		return false
	}
	for _, expression := range term.MatchExpressions {
		if !matchesExpression(expression, node.Labels) {
			return false
		}
	}
	for _, field := range term.MatchFields {
		if field.Key != "metadata.name" || slices.Contains(field.Values, node.Name) != (field.Operator == corev1.NodeSelectorOpIn) {
			return false
		}
	}
	return true
}

var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn:           selection.In,
	corev1.NodeSelectorOpNotIn:        selection.NotIn,
	corev1.NodeSelectorOpExists:       selection.Exists,
	corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
}

func matchesExpression(expression corev1.NodeSelectorRequirement, of map[string]string) bool {
	if operator, known := operators[expression.Operator]; known {
		requirement, err := labels.NewRequirement(expression.Key, operator, expression.Values)
		return err == nil && requirement.Matches(labels.Set(of))
	}
	if len(expression.Values) != 1 {
		return false
	}
	value, err := strconv.ParseInt(of[expression.Key], 10, 64)
	limit, errLimit := strconv.ParseInt(expression.Values[0], 10, 64)
	if err != nil || errLimit != nil {
		return false
	}
	return (expression.Operator == corev1.NodeSelectorOpGt && value > limit) || (expression.Operator == corev1.NodeSelectorOpLt && value < limit)
}
