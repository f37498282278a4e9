// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package autoscaler

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ScaleUp is the result of one loop.
type ScaleUp struct {
	// Group is the node group that gets more replicas; empty if none does.
	Group    string
	From, To int
	Max      int
	// Pods are those for which the group is scaled up.
	Pods []*corev1.Pod
	// Waiting are the pods that fit on nodes that exist or are starting.
	Waiting []*corev1.Pod
	// Rejected contains for each remaining pod, by namespace/name, the reason of each group; Ignored for MachineSets that are
	// no node groups.
	Rejected map[string]map[string]string
	Ignored  map[string]string
	// Disabled is the reason why nothing was decided.
	Disabled string
}

// option is a group that could be scaled up.
type option struct {
	group *Group
	count int
	pods  []*corev1.Pod
	waste float64
}

// Decide returns what the autoscaler does in one loop for the pods that cannot be scheduled.
func Decide(s *State) ScaleUp {
	if s.Autoscaler == nil {
		return ScaleUp{Disabled: "no ClusterAutoscaler named default"}
	}
	v := newView(s)
	result := ScaleUp{Rejected: map[string]map[string]string{}, Ignored: v.ignored}
	remaining := v.unplaced(&result)
	if len(remaining) == 0 {
		return result
	}
	left := v.limitsLeft()
	total := len(v.Nodes)
	for _, group := range v.groups {
		total += max(group.Replicas-v.registered(group), 0)
	}
	var options []option
	for _, group := range v.groups {
		reason := v.skip(group, left)
		if reason == "" {
			var found option
			found, reason = v.estimate(group, remaining, &result)
			if found.count > 0 {
				options = append(options, found)
				continue
			}
		}
		if reason != "" {
			for _, pod := range remaining {
				result.reject(pod, group.Name, reason)
			}
		}
	}
	if len(options) == 0 {
		return result
	}
	best := v.expand(options)
	group := best.group
	count := left.cap(best.count, v.delta(group, v.templates[group.Name]))
	if limited := v.Autoscaler.Spec.ResourceLimits; limited != nil && limited.MaxNodesTotal != nil && *limited.MaxNodesTotal > 0 {
		if room := int(*limited.MaxNodesTotal) - total; count > room {
			count = room
		}
		if count < 1 {
			result.Disabled = "max node total count already reached"
			return result
		}
	}
	result.Group, result.From, result.To, result.Max, result.Pods = group.Name, group.Replicas, min(group.Replicas+count, group.Max), group.Max, best.pods
	return result
}

// unplaced returns the pods that fit neither on a node nor on one that is starting.
func (v *view) unplaced(result *ScaleUp) []*corev1.Pod {
	spaces := v.spaces()
	var remaining []*corev1.Pod
	for _, pod := range v.pending() {
		if slices.ContainsFunc(spaces, func(s *space) bool { return s.place(pod) == "" }) {
			result.Waiting = append(result.Waiting, pod)
		} else {
			remaining = append(remaining, pod)
		}
	}
	return remaining
}

func (v *view) registered(group *Group) int {
	count := 0
	for _, name := range v.groupOf {
		if name == group.Name {
			count++
		}
	}
	return count
}

// skip returns the reason why a group cannot grow, for any pod.
func (v *view) skip(group *Group, left limits) string {
	if until, failed := v.Backoff[group.Name]; failed && until.After(v.Now) {
		return "in backoff after failed scale-up"
	}
	if group.Replicas >= group.Max {
		return "max node group size reached"
	}
	template := v.templates[group.Name]
	if template == nil {
		return "not ready for scale-up"
	}
	if exceeded := left.exceeded(v.delta(group, template)); len(exceeded) > 0 {
		return fmt.Sprintf("max cluster %s limit reached", strings.Join(exceeded, ", "))
	}
	return ""
}

// estimate packs the pods onto new nodes of a group; the reasons of pods that do not fit are added to the result.
func (v *view) estimate(group *Group, pods []*corev1.Pod, result *ScaleUp) (option, string) {
	template := v.templates[group.Name]
	empty := newSpace(template, nil)
	found := option{group: group}
	var nodes []*space
	for _, pod := range pods {
		if reason := empty.copy().place(pod); reason != "" {
			result.reject(pod, group.Name, reason)
			continue
		}
		if !slices.ContainsFunc(nodes, func(s *space) bool { return s.place(pod) == "" }) {
			if group.Replicas+len(nodes) >= group.Max {
				continue
			}
			fresh := empty.copy()
			fresh.place(pod)
			nodes = append(nodes, fresh)
		}
		found.pods = append(found.pods, pod)
	}
	found.count = len(nodes)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if whole := empty.free[name]; whole > 0 {
			for _, one := range nodes {
				found.waste += float64(one.free[name]) / float64(whole) / float64(len(nodes))
			}
		}
	}
	return found, ""
}

func (r *ScaleUp) reject(pod *corev1.Pod, group, reason string) {
	key := pod.Namespace + "/" + pod.Name
	if r.Rejected[key] == nil {
		r.Rejected[key] = map[string]string{}
	}
	r.Rejected[key][group] = reason
}

// expand chooses one of the options: each expander narrows the choice, and the rest is random.
func (v *view) expand(options []option) option {
	for _, name := range v.Autoscaler.Spec.Expanders {
		if len(options) == 1 {
			break
		}
		switch name {
		case "LeastWaste":
			least := slices.MinFunc(options, func(a, b option) int { return compare(a.waste, b.waste) }).waste
			options = slices.DeleteFunc(options, func(o option) bool { return o.waste > least })
		case "Priority":
			options = v.preferred(options)
		}
	}
	return options[rand.IntN(len(options))]
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// preferred returns the options with the highest priority; without any match, all of them.
func (v *view) preferred(options []option) []option {
	for _, level := range slices.Backward(slices.Sorted(maps.Keys(v.Priorities))) {
		var found []option
		for _, one := range options {
			if slices.ContainsFunc(v.Priorities[level], func(pattern string) bool {
				expression, err := regexp.Compile(pattern)
				return err == nil && expression.MatchString("MachineSet/openshift-machine-api/"+one.group.Name)
			}) {
				found = append(found, one)
			}
		}
		if len(found) > 0 {
			return found
		}
	}
	return options
}

// Message returns the text of the event for a pod that triggered no scale-up.
func (r *ScaleUp) Message(pod *corev1.Pod) string {
	counts := map[string]int{}
	for _, reason := range r.Rejected[pod.Namespace+"/"+pod.Name] {
		counts[reason]++
	}
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[reason], reason))
	}
	return "pod didn't trigger scale-up: " + strings.Join(parts, ", ")
}
