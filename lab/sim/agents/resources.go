// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"encoding/json"
	"hash/fnv"
	"maps"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// grace is how long a kubelet keeps the capacity of a resource after its plugin stops (endpointStopGracePeriod).
const grace = 5 * time.Minute

// endpoint is one resource in the kubelet's device manager; it has no healthy ids after its plugin stops.
type endpoint struct {
	ids     []string
	size    int64
	stopped time.Time
}

// register is the kubelet's side of registration: the running plugin's devices become the node's capacity.
func (r *reconciliation) register(plugin *agent) error {
	if r.memory.endpoints == nil {
		r.memory.endpoints = map[string]*endpoint{}
		for resource, size := range r.node.Capacity {
			r.memory.endpoints[resource] = &endpoint{size: size, stopped: time.Now()}
		}
	}
	offered := map[string][]string{}
	if plugin != nil && r.mpsServed(plugin) {
		offered = plugin.offers
	}
	for resource, ids := range offered {
		r.memory.endpoints[resource] = &endpoint{ids: ids, size: int64(len(ids))}
	}
	capacity, allocatable := map[string]int64{}, map[string]int64{}
	for resource, e := range r.memory.endpoints {
		if _, alive := offered[resource]; !alive && e.stopped.IsZero() {
			e.ids, e.stopped = nil, time.Now()
		}
		if until := e.stopped.Add(r.scaled(grace)); !e.stopped.IsZero() && e.size > 0 {
			if time.Now().Before(until) {
				r.again.at(until)
			} else {
				e.size = 0
			}
		}
		capacity[resource], allocatable[resource] = e.size, int64(len(e.ids))
	}
	if maps.Equal(capacity, r.node.Capacity) && maps.Equal(allocatable, r.node.Allocatable) {
		r.memory.statusDue = time.Time{}
		return nil
	}
	if !r.statusDue() {
		return nil
	}
	return r.patchNode(object{"capacity": quantities(capacity), "allocatable": quantities(allocatable)})
}

// statusDue returns whether the kubelet writes the node's status now: with the option NodeStatusPeriod at fixed times, which
// differ by node, so that the API server and the scheduler can have an old number of devices until then.
func (r *reconciliation) statusDue() bool {
	period := r.scaled(r.options.NodeStatusPeriod)
	if period <= 0 {
		return true
	}
	now := time.Now()
	if r.memory.statusDue.IsZero() {
		r.memory.statusDue = nextStatus(r.node.Name, now, period)
	}
	if now.Before(r.memory.statusDue) {
		r.again.at(r.memory.statusDue)
		return false
	}
	r.memory.statusDue = time.Time{}
	return true
}

// nextStatus returns the next time after now at which the kubelet of a node writes the node's status.
func nextStatus(node string, now time.Time, period time.Duration) time.Time {
	sum := fnv.New64a()
	sum.Write([]byte(node))
	offset := time.Duration(sum.Sum64() % uint64(period))
	return now.Add(-offset).Truncate(period).Add(offset + period)
}

func quantities(of map[string]int64) map[string]string {
	list := map[string]string{}
	for resource, count := range of {
		list[resource] = strconv.FormatInt(count, 10)
	}
	return list
}

func (r *reconciliation) patchNode(status object) error {
	data, err := json.Marshal(object{"metadata": object{"uid": string(r.node.UID)}, "status": status})
	if err != nil {
		return err
	}
	_, err = r.core.CoreV1().Nodes().Patch(r.ctx, r.node.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, "status")
	return ignoreGone(err)
}
