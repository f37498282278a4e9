// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"cmp"
	"context"
	"slices"
	"time"

	"lab.invalid/sim/rules"
)

// memory is what the agents and the kubelet of one node remember. What must survive the simulator is in annotations.
type memory struct {
	agents    map[string]*agent
	crashes   map[string]*crash
	assigned  map[string]rules.Allocation
	endpoints map[string]*endpoint
	published map[string]string
}

func newMemory() *memory {
	return &memory{agents: map[string]*agent{}, crashes: map[string]*crash{}, assigned: map[string]rules.Allocation{}, published: map[string]string{}}
}

// soonest keeps the shortest time until something happens by itself.
type soonest struct {
	after time.Duration
}

func (s *soonest) at(when time.Time) {
	after := max(time.Until(when), time.Millisecond)
	if s.after == 0 || after < s.after {
		s.after = after
	}
}

// visit is one look at one node.
type visit struct {
	*Simulator
	ctx    context.Context
	node   *Node
	pods   []*Pod
	memory *memory
	again  soonest
}

// reconcile lets every agent of a node act once; it returns when to look again.
func (s *Simulator) reconcile(ctx context.Context, name string) (time.Duration, error) {
	object, exists, err := s.nodes.GetStore().GetByKey(name)
	if err != nil || !exists {
		s.forget(name)
		return 0, err
	}
	objects, err := s.pods.GetIndexer().ByIndex(byNode, name)
	if err != nil {
		return 0, err
	}
	v := &visit{Simulator: s, ctx: ctx, node: object.(*Node), memory: s.memoryOf(name)}
	for _, pod := range objects {
		v.pods = append(v.pods, pod.(*Pod))
	}
	slices.SortFunc(v.pods, func(a, b *Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	v.prune()
	err = v.act()
	return v.again.after, err
}

// prune forgets pods that are gone.
func (v *visit) prune() {
	alive := map[string]bool{}
	for _, pod := range v.pods {
		alive[string(pod.UID)] = true
	}
	for uid := range v.memory.agents {
		if !alive[uid] {
			delete(v.memory.agents, uid)
		}
	}
	for uid := range v.memory.crashes {
		if !alive[uid] {
			delete(v.memory.crashes, uid)
		}
	}
	for uid := range v.memory.assigned {
		if !alive[uid] {
			delete(v.memory.assigned, uid)
		}
	}
}

func (v *visit) act() error {
	if v.node.Faults.Has(rules.NodeNotReady) {
		return nil // a dead kubelet reports nothing
	}
	if err := v.hold(); err != nil {
		return err
	}
	var plugin *rules.Config
	for _, pod := range v.pods {
		if pod.DeletionTimestamp != nil || pod.Hold != "" {
			continue
		}
		switch pod.Operand {
		case nfdWorker:
			if err := v.work(pod); err != nil {
				return err
			}
		case gfd, devicePlugin:
			config, err := v.step(pod)
			if err != nil {
				return err
			}
			if config == nil || !pod.Running() {
				continue
			}
			if pod.Operand == devicePlugin {
				plugin = config
			} else if err := v.discover(pod, config); err != nil {
				return err
			}
		}
	}
	if err := v.register(plugin); err != nil {
		return err
	}
	if err := v.admit(plugin); err != nil {
		return err
	}
	return v.recover()
}
