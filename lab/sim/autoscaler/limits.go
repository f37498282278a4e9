// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package autoscaler

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// The resource limits that are not GPU types.
const (
	cores  = "cpu"
	memory = "memory"
)

// limits contains what is left below the maxima of the ClusterAutoscaler; a missing entry is not limited.
type limits map[string]int64

// limitsLeft compares the sizes of all node groups, and the other nodes, with the maxima.
func (v *view) limitsLeft() limits {
	left := limits{}
	limited := v.Autoscaler.Spec.ResourceLimits
	if limited == nil {
		return left
	}
	if limited.Cores != nil && limited.Cores.Max > 0 {
		left[cores] = limited.Cores.Max
	}
	if limited.Memory != nil && limited.Memory.Max > 0 {
		left[memory] = limited.Memory.Max << 30
	}
	for _, one := range limited.GPUS {
		if one.Max > 0 {
			left[one.Type] = one.Max
		}
	}
	used := limits{}
	for _, group := range v.groups {
		if template := v.templates[group.Name]; template != nil {
			used.add(v.delta(group, template), int64(group.Replicas))
		}
	}
	for _, node := range v.Nodes {
		if v.groupOf[node.Name] == "" {
			used.add(v.delta(nil, node), 1)
		}
	}
	for name := range left {
		left[name] = max(left[name]-used[name], 0)
	}
	return left
}

func (l limits) add(delta limits, times int64) {
	for name, amount := range delta {
		l[name] += amount * times
	}
}

// delta returns what one node adds. GPUs count only on nodes with the accelerator label, under its value.
func (v *view) delta(group *Group, node *corev1.Node) limits {
	found := limits{cores: node.Status.Capacity.Cpu().Value(), memory: node.Status.Capacity.Memory().Value()}
	kind, labelled := node.Labels[Accelerator]
	if !labelled {
		return found
	}
	count := v.gpus(node.Status.Allocatable)
	if count == 0 && group != nil && group.Template != nil {
		count = v.gpus(group.Template.Status.Capacity)
	}
	if count > 0 {
		found[kind] += count
	}
	return found
}

func (v *view) gpus(list corev1.ResourceList) int64 {
	for _, name := range v.Rules.Counted {
		if quantity := list[corev1.ResourceName(name)]; quantity.Value() > 0 {
			return quantity.Value()
		}
	}
	return 0
}

// exceeded returns the limits that one more node would exceed.
func (l limits) exceeded(delta limits) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(delta)) {
		if left, limited := l[name]; limited && delta[name] > left {
			found = append(found, name)
		}
	}
	return found
}

// cap returns how many of the nodes the limits allow.
func (l limits) cap(count int, delta limits) int {
	for name, amount := range delta {
		if left, limited := l[name]; limited && amount > 0 {
			count = min(count, int(left/amount))
		}
	}
	return count
}
