// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"encoding/json"
	"maps"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// grace is how long a kubelet keeps the capacity of a resource whose plugin went away (endpointStopGracePeriod).
const grace = 5 * time.Minute

// endpoint is one resource as the kubelet's device manager knows it; it has no healthy ids once its plugin is gone.
type endpoint struct {
	ids     []string
	size    int64
	stopped time.Time
}

// register is the kubelet's side: what the running plugin offers becomes the node's capacity.
func (v *reconciliation) register(plugin *agent) error {
	if v.memory.endpoints == nil {
		v.memory.endpoints = map[string]*endpoint{}
		for resource, size := range v.node.Capacity {
			v.memory.endpoints[resource] = &endpoint{size: size, stopped: time.Now()}
		}
	}
	offered := map[string][]string{}
	if plugin != nil && v.mpsServed(plugin) {
		offered = plugin.offers
	}
	for resource, ids := range offered {
		v.memory.endpoints[resource] = &endpoint{ids: ids, size: int64(len(ids))}
	}
	capacity, allocatable := map[string]int64{}, map[string]int64{}
	for resource, e := range v.memory.endpoints {
		if _, alive := offered[resource]; !alive && e.stopped.IsZero() {
			e.ids, e.stopped = nil, time.Now()
		}
		if until := e.stopped.Add(v.scaled(grace)); !e.stopped.IsZero() && e.size > 0 {
			if time.Now().Before(until) {
				v.again.at(until)
			} else {
				e.size = 0
			}
		}
		capacity[resource], allocatable[resource] = e.size, int64(len(e.ids))
	}
	if maps.Equal(capacity, v.node.Capacity) && maps.Equal(allocatable, v.node.Allocatable) {
		return nil
	}
	return v.patchNode(object{"capacity": quantities(capacity), "allocatable": quantities(allocatable)})
}

func quantities(of map[string]int64) map[string]string {
	list := map[string]string{}
	for resource, count := range of {
		list[resource] = strconv.FormatInt(count, 10)
	}
	return list
}

func (v *reconciliation) patchNode(status object) error {
	data, err := json.Marshal(object{"metadata": object{"uid": string(v.node.UID)}, "status": status})
	if err != nil {
		return err
	}
	_, err = v.core.CoreV1().Nodes().Patch(v.ctx, v.node.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, "status")
	return ignoreGone(err)
}
