// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package autoscaler

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lab.invalid/sim/machineapi"
)

// The names of objects and settings of the real autoscaler.
const (
	MachineAnnotation    = "machine.openshift.io/machine"
	ToBeDeleted          = "ToBeDeletedByClusterAutoscaler"
	deletionCandidate    = "DeletionCandidateOfClusterAutoscaler"
	DefaultClusterScaler = "default"
	// A pod below this priority neither triggers a scale-up nor keeps a node.
	defaultPriorityCutoff = -10
	// A ready node is the template of its group only after this time.
	stabilization = time.Minute
	// A node that is not ready counts as starting for this time.
	startup = 15 * time.Minute
)

// State is what one loop of the autoscaler reads.
type State struct {
	Rules       Rules
	Now         time.Time
	MachineSets []*machineapi.MachineSet
	Machines    []*machineapi.Machine
	Nodes       []*corev1.Node
	Pods        []*corev1.Pod
	// Autoscaler is the ClusterAutoscaler named default; without it no autoscaler runs.
	Autoscaler *machineapi.ClusterAutoscaler
	// Priorities is the ConfigMap of the Priority expander: patterns of group names by priority.
	Priorities map[int][]string
	// Cached contains the last node of each group as a template: the autoscaler remembers it until it is restarted.
	Cached map[string]*corev1.Node
	// Backoff contains the groups that are not scaled up until a time, after a failure.
	Backoff map[string]time.Time
	// Scaled is how long a duration of the ClusterAutoscaler takes; nil means its real time.
	Scaled func(time.Duration) time.Duration
}

// view is a state with derived data.
type view struct {
	*State
	groups    []*Group
	ignored   map[string]string
	templates map[string]*corev1.Node
	groupOf   map[string]string // by name of the node
	ready     map[string]bool   // by name of the node, as the autoscaler counts
	podsOn    map[string][]*corev1.Pod
}

func newView(s *State) *view {
	v := &view{State: s, ignored: map[string]string{}, templates: map[string]*corev1.Node{}, groupOf: map[string]string{}, ready: map[string]bool{}, podsOn: map[string][]*corev1.Pod{}}
	for _, set := range s.MachineSets {
		if group, reason := NewGroup(set, s.Rules); group != nil {
			v.groups = append(v.groups, group)
		} else {
			v.ignored[set.Name] = reason
		}
	}
	slices.SortFunc(v.groups, func(a, b *Group) int { return strings.Compare(a.Name, b.Name) })
	setOf := map[string]string{}
	for _, machine := range s.Machines {
		setOf[machine.Name] = owner(machine)
	}
	for _, node := range s.Nodes {
		v.ready[node.Name] = isReady(node) && !lacksGPU(node, s.Rules) && !slices.ContainsFunc(node.Spec.Taints, v.isStartup)
		_, machine, _ := strings.Cut(node.Annotations[MachineAnnotation], "/")
		set := setOf[machine]
		if slices.ContainsFunc(v.groups, func(g *Group) bool { return g.Name == set }) {
			v.groupOf[node.Name] = set
		}
	}
	for _, pod := range s.Pods {
		if pod.Spec.NodeName != "" && !isFinished(pod) {
			v.podsOn[pod.Spec.NodeName] = append(v.podsOn[pod.Spec.NodeName], pod)
		}
	}
	for _, group := range v.groups {
		if template := v.template(group); template != nil {
			v.templates[group.Name] = template
		}
	}
	return v
}

// template returns the template of a group: a stable ready node, the last such node, the MachineSet's description, or any node.
func (v *view) template(group *Group) *corev1.Node {
	var fallback *corev1.Node
	for _, node := range v.Nodes {
		if v.groupOf[node.Name] != group.Name {
			continue
		}
		if fallback == nil {
			fallback = node
		}
		if v.ready[node.Name] && !node.Spec.Unschedulable && v.Now.Sub(readySince(node)) > v.scaled(stabilization) {
			template := v.sanitize(node, group)
			if v.Cached != nil {
				v.Cached[group.Name] = template
			}
			return template
		}
	}
	if cached := v.Cached[group.Name]; cached != nil {
		return cached
	}
	if group.Template != nil {
		return v.sanitize(group.Template, group)
	}
	if fallback != nil {
		return v.sanitize(fallback, group)
	}
	return nil
}

// sanitize returns a node as a template: with another name, and without the taints that express its state
// (utils/taints, SanitizeTaints).
func (v *view) sanitize(node *corev1.Node, group *Group) *corev1.Node {
	copied := node.DeepCopy()
	copied.Name = group.Name + "-template"
	copied.Labels[corev1.LabelHostname] = copied.Name
	copied.Spec.Unschedulable = false
	copied.Spec.Taints = slices.DeleteFunc(copied.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Key == ToBeDeleted || taint.Key == deletionCandidate || (strings.HasPrefix(taint.Key, "node.kubernetes.io/") && !strings.HasSuffix(taint.Key, "out-of-service")) ||
			strings.HasPrefix(taint.Key, "node.cloudprovider.kubernetes.io/") || v.isStartup(taint)
	})
	return copied
}

// isStartup returns whether a taint means that a node is starting: a node with it does not count as ready (utils/taints).
func (v *view) isStartup(taint corev1.Taint) bool {
	return strings.HasPrefix(taint.Key, "startup-taint.cluster-autoscaler.kubernetes.io/") || strings.HasPrefix(taint.Key, "ignore-taint.cluster-autoscaler.kubernetes.io/") ||
		slices.Contains(v.Autoscaler.Spec.StartupTaints, taint.Key)
}

// upcoming returns how many machines of a group are not nodes yet, or are nodes that are still starting.
func (v *view) upcoming(group *Group) int {
	count := group.Replicas
	for _, node := range v.Nodes {
		if v.groupOf[node.Name] == group.Name && (v.ready[node.Name] || v.Now.Sub(node.CreationTimestamp.Time) > v.scaled(startup)) {
			count--
		}
	}
	return max(count, 0)
}

func (v *view) scaled(d time.Duration) time.Duration {
	if v.Scaled == nil {
		return d
	}
	return v.Scaled(d)
}

// spaces returns the ready nodes with their free resources, and those that will exist.
func (v *view) spaces() []*space {
	var found []*space
	for _, node := range v.Nodes {
		if v.ready[node.Name] && !hasTaint(node, ToBeDeleted) {
			found = append(found, newSpace(node, v.podsOn[node.Name]))
		}
	}
	for _, group := range v.groups {
		template := v.templates[group.Name]
		for range v.upcoming(group) {
			if template != nil {
				found = append(found, newSpace(template, nil))
			}
		}
	}
	return found
}

// pending returns the pods for which the scheduler found no node and that are important enough.
func (v *view) pending() []*corev1.Pod {
	cutoff, delay := int32(defaultPriorityCutoff), time.Duration(0)
	if threshold := v.Autoscaler.Spec.PodPriorityThreshold; threshold != nil {
		cutoff = *threshold
	}
	if up := v.Autoscaler.Spec.ScaleUp; up != nil {
		delay = v.scaled(Duration(up.NewPodScaleUpDelay, 0))
	}
	var found []*corev1.Pod
	for _, pod := range v.Pods {
		if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && !isFinished(pod) && isUnschedulable(pod) && priority(pod) >= cutoff &&
			v.Now.Sub(pod.CreationTimestamp.Time) >= delay {
			found = append(found, pod)
		}
	}
	slices.SortFunc(found, func(a, b *corev1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return found
}

// Duration parses a duration of the ClusterAutoscaler.
func Duration(text string, otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(text); err == nil {
		return d
	}
	return otherwise
}

func owner(machine *machineapi.Machine) string {
	for _, reference := range machine.OwnerReferences {
		if reference.Kind == "MachineSet" {
			return reference.Name
		}
	}
	return ""
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

func isUnschedulable(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
}

func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func readySince(node *corev1.Node) time.Time {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// lacksGPU returns whether a node has the accelerator label but no GPU: such a node counts as not ready, however long.
func lacksGPU(node *corev1.Node, rules Rules) bool {
	_, labelled := node.Labels[Accelerator]
	return labelled && !slices.ContainsFunc(rules.ReadyBy, func(name string) bool {
		quantity := node.Status.Allocatable[corev1.ResourceName(name)]
		return !quantity.IsZero()
	})
}

func hasTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == key })
}
