// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package autoscaler

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The defaults of the autoscaler's flags for scaling down.
const (
	DelayAfterAdd        = 10 * time.Minute
	DelayAfterFailure    = 3 * time.Minute
	UnneededTime         = 10 * time.Minute
	unreadyTime          = 20 * time.Minute
	utilizationThreshold = 0.5
	safeToEvict          = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	scaleDownDisabled    = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
)

// Unneeded returns the nodes without which all pods still run, each with the pods that would move, and for how long a node
// must be unneeded before it is removed.
func Unneeded(s *State) (map[string][]*corev1.Pod, map[string]time.Duration) {
	nodes, after := map[string][]*corev1.Pod{}, map[string]time.Duration{}
	if s.Autoscaler == nil || (s.Autoscaler.Spec.ScaleDown != nil && !s.Autoscaler.Spec.ScaleDown.Enabled) {
		return nodes, after
	}
	v := newView(s)
	wait, threshold := UnneededTime, utilizationThreshold
	if down := s.Autoscaler.Spec.ScaleDown; down != nil {
		wait = Duration(down.UnneededTime, wait)
		if parsed, err := strconv.ParseFloat(down.UtilizationThreshold, 64); err == nil {
			threshold = parsed
		}
	}
	spaces := v.spaces()
	room := map[string]int{}
	for _, group := range v.groups {
		room[group.Name] = group.Replicas - group.Min
	}
	for _, node := range s.Nodes {
		group := v.groupOf[node.Name]
		if group == "" || room[group] < 1 || hasTaint(node, ToBeDeleted) || node.Annotations[scaleDownDisabled] == "true" ||
			(!v.ready[node.Name] && v.Now.Sub(node.CreationTimestamp.Time) < v.scaled(startup)) {
			continue
		}
		moving, possible := v.moving(node)
		if !possible || v.utilization(node) >= threshold || !fitElsewhere(moving, node, spaces) {
			continue
		}
		room[group]--
		nodes[node.Name] = moving
		after[node.Name] = v.scaled(wait)
		if !v.ready[node.Name] {
			after[node.Name] = v.scaled(unreadyTime)
		}
		spaces = slices.DeleteFunc(spaces, func(s *space) bool { return s.node.Name == node.Name })
	}
	return nodes, after
}

// moving returns the pods that a removal of the node evicts, unless one of them keeps the node.
func (v *view) moving(node *corev1.Node) ([]*corev1.Pod, bool) {
	local := v.Autoscaler.Spec.SkipNodesWithLocalStorage == nil || *v.Autoscaler.Spec.SkipNodesWithLocalStorage
	var found []*corev1.Pod
	for _, pod := range v.podsOn[node.Name] {
		controller := metav1.GetControllerOf(pod)
		if pod.DeletionTimestamp != nil || (controller != nil && controller.Kind == "DaemonSet") || (controller != nil && controller.Kind == "Node") ||
			(v.Autoscaler.Spec.PodPriorityThreshold != nil && priority(pod) < *v.Autoscaler.Spec.PodPriorityThreshold) || priority(pod) < defaultPriorityCutoff {
			continue
		}
		if pod.Annotations[safeToEvict] != "true" {
			if pod.Annotations[safeToEvict] == "false" || controller == nil || pod.Namespace == metav1.NamespaceSystem || (local && hasLocalStorage(pod)) {
				return nil, false
			}
		}
		found = append(found, pod)
	}
	return found, true
}

func hasLocalStorage(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.HostPath != nil || (v.EmptyDir != nil && v.EmptyDir.Medium != corev1.StorageMediumMemory)
	})
}

// utilization returns the share of requested GPUs on a node with GPUs, otherwise the larger one of CPU and memory.
func (v *view) utilization(node *corev1.Node) float64 {
	allocatable, used := amountsOf(node.Status.Allocatable), amounts{}
	for _, pod := range v.podsOn[node.Name] {
		used.add(requests(pod))
	}
	share := func(name corev1.ResourceName) float64 {
		if allocatable[name] == 0 {
			return 0
		}
		return float64(used[name]) / float64(allocatable[name])
	}
	if _, labelled := node.Labels[Accelerator]; labelled || allocatable[nvidiaGPU] > 0 {
		return share(nvidiaGPU)
	}
	return max(share(corev1.ResourceCPU), share(corev1.ResourceMemory))
}

func fitElsewhere(pods []*corev1.Pod, node *corev1.Node, spaces []*space) bool {
	others := []*space{}
	for _, one := range spaces {
		if one.node.Name != node.Name {
			others = append(others, one.copy())
		}
	}
	for _, pod := range pods {
		if !slices.ContainsFunc(others, func(s *space) bool { return s.place(pod) == "" }) {
			return false
		}
	}
	return true
}
