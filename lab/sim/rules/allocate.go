// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// DeviceRequest is a container's request for one extended resource.
type DeviceRequest struct {
	Container string
	Init      bool
	Resource  string
	Count     int
}

// Allocation contains the devices of a pod: container -> resource -> device ids. It is stored in an annotation of the pod.
type Allocation map[string]map[string][]string

// DevicesAnnotation contains a pod's allocation; kwok does not start a GPU pod without it.
const DevicesAnnotation = "lab.accel.gpu/devices"

// ParseAllocation parses the annotation of a pod.
func ParseAllocation(annotation string) (Allocation, error) {
	var a Allocation
	if err := json.Unmarshal([]byte(annotation), &a); err != nil {
		return nil, fmt.Errorf("%s: %w", DevicesAnnotation, err)
	}
	return a, nil
}

// InUse returns the device ids of allocations, by resource.
func InUse(allocations []Allocation) map[string]map[string]bool {
	used := map[string]map[string]bool{}
	for _, a := range allocations {
		for _, resources := range a {
			for resource, ids := range resources {
				if used[resource] == nil {
					used[resource] = map[string]bool{}
				}
				for _, id := range ids {
					used[resource][id] = true
				}
			}
		}
	}
	return used
}

// DevicePool is the kubelet's device manager: the healthy ids of each resource that was ever registered.
type DevicePool struct {
	Healthy       map[string][]string
	Used          map[string]map[string]bool
	OnePerRequest bool
}

// Allocate returns the devices for a pod, or the kubelet's error (devicemanager and the plugin's Allocate).
func (p DevicePool) Allocate(requests []DeviceRequest) (Allocation, error) {
	allocation := Allocation{}
	taken := map[string]map[string]bool{}
	reusable := map[string][]string{}
	for _, r := range requests {
		ids, err := p.devices(r, reusable[r.Resource], taken[r.Resource])
		if err != nil {
			return nil, err
		}
		if p.OnePerRequest && len(ids) > 1 && strings.Contains(ids[0], "::") {
			return nil, fmt.Errorf("rpc error: code = Unknown desc = invalid allocation request for %q: invalid request: "+
				"maximum request size for shared resources is 1; found %d", r.Resource, len(ids))
		}
		if taken[r.Resource] == nil {
			taken[r.Resource] = map[string]bool{}
		}
		for _, id := range ids {
			taken[r.Resource][id] = true
		}
		if r.Init {
			reusable[r.Resource] = union(reusable[r.Resource], ids)
		} else {
			reusable[r.Resource] = without(reusable[r.Resource], ids)
		}
		if allocation[r.Container] == nil {
			allocation[r.Container] = map[string][]string{}
		}
		allocation[r.Container][r.Resource] = ids
	}
	return allocation, nil
}

func (p DevicePool) devices(r DeviceRequest, reusable []string, taken map[string]bool) ([]string, error) {
	healthy, registered := p.Healthy[r.Resource]
	if !registered {
		return nil, fmt.Errorf("cannot allocate unregistered device %s", r.Resource)
	}
	if len(healthy) == 0 {
		return nil, fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", r.Resource)
	}
	ids := slices.Clone(reusable[:min(len(reusable), r.Count)])
	var free []string
	for _, id := range healthy {
		if !p.Used[r.Resource][id] && !taken[id] {
			free = append(free, id)
		}
	}
	needed := r.Count - len(ids)
	if len(free) < needed {
		return nil, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", r.Resource, needed, len(free))
	}
	return append(ids, distribute(healthy, free, needed)...), nil
}

// distribute is the plugin's policy "distributed": it selects a replica of the GPU with the fewest replicas in use.
func distribute(all, free []string, count int) []string {
	busy := map[string]int{}
	for _, id := range all {
		busy[GPU(id)]++
	}
	for _, id := range free {
		busy[GPU(id)]--
	}
	free = slices.Clone(free)
	var chosen []string
	for range count {
		best := 0
		for i, id := range free {
			if busy[GPU(id)] < busy[GPU(free[best])] {
				best = i
			}
		}
		busy[GPU(free[best])]++
		chosen = append(chosen, free[best])
		free = slices.Delete(free, best, best+1)
	}
	return chosen
}

// GPU returns the device id of a replica.
func GPU(id string) string {
	uuid, _, _ := strings.Cut(id, "::")
	return uuid
}

// Visible returns the distinct GPUs that are visible in a container.
func Visible(resources map[string][]string) []string {
	var names []string
	for resource := range resources {
		names = append(names, resource)
	}
	slices.Sort(names)
	var gpus []string
	for _, resource := range names {
		for _, id := range resources[resource] {
			if gpu := GPU(id); !slices.Contains(gpus, gpu) {
				gpus = append(gpus, gpu)
			}
		}
	}
	return gpus
}

// Index returns the index of a GPU or MIG device, as the device plugin passes it to a container with the strategy index:
// 1, or 1:2 for the MIG device 2 of GPU 1.
func Index(node string, h *Hardware, l Layout, id string) string {
	for gpu := range h.GPUs {
		if UUID(node, gpu) == id {
			return strconv.Itoa(gpu)
		}
		for number, device := range l.GPUs[gpu] {
			if MIGUUID(node, gpu, device) == id {
				return fmt.Sprintf("%d:%d", gpu, number)
			}
		}
	}
	return id
}

// Rejection returns the kubelet's message for a pod that is not admitted.
func Rejection(err error) string {
	return fmt.Sprintf("Pod was rejected: Allocate failed due to %v, which is unexpected", err)
}

func union(a, b []string) []string {
	for _, item := range b {
		if !slices.Contains(a, item) {
			a = append(a, item)
		}
	}
	return a
}

func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(item string) bool { return slices.Contains(b, item) })
}
