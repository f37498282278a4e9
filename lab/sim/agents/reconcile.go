// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"lab.invalid/sim/rules"
)

// memory is what the agents and the kubelet of one node remember. What must survive the simulator is in annotations.
type memory struct {
	uid       types.UID
	agents    map[string]*agent
	managers  map[string]*migProcess
	crashes   map[string]*crash
	assigned  map[string]rules.Allocation
	endpoints map[string]*endpoint
	published map[string]string
	loading   map[string]time.Time // until when a driver pod loads its driver
	// What was written a moment ago, which the informer may not have seen: the driver, the state of the GPUs, which process
	// a fault has hung, which wish for a reboot was followed, until when the node is down, and the last time that it was.
	driver        string
	hungProcess   string
	layout        *rules.Layout
	rebootRequest string
	rebooting     time.Time
	rebooted      time.Time
}

func newMemory(uid types.UID) *memory {
	return &memory{uid: uid, agents: map[string]*agent{}, managers: map[string]*migProcess{}, crashes: map[string]*crash{},
		assigned: map[string]rules.Allocation{}, published: map[string]string{}, loading: map[string]time.Time{}}
}

// wakeUp keeps the shortest time until something happens by itself.
type wakeUp struct {
	after time.Duration
}

func (s *wakeUp) at(when time.Time) {
	after := max(time.Until(when), time.Millisecond)
	if s.after == 0 || after < s.after {
		s.after = after
	}
}

// reconciliation is one look at one node.
type reconciliation struct {
	*Simulator
	ctx    context.Context
	node   *Node
	pods   []*Pod
	memory *memory
	again  wakeUp
}

// scaledForNode is how long something takes on this very machine. What programs count by the clock (how often they look, when
// they give up) is the same on all machines: scaled.
func (v *reconciliation) scaledForNode(d time.Duration) time.Duration {
	if v.node.Hardware == nil || v.node.Hardware.TimeFactor == 0 {
		return v.scaled(d)
	}
	return v.scaled(time.Duration(float64(d) * v.node.Hardware.TimeFactor))
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
	node := object.(*Node)
	v := &reconciliation{Simulator: s, ctx: ctx, node: node, memory: s.memoryOf(node)}
	for _, pod := range objects {
		v.pods = append(v.pods, pod.(*Pod))
	}
	slices.SortFunc(v.pods, func(a, b *Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	v.prune()
	err = v.reconcileNode()
	return v.again.after, err
}

// prune forgets pods that are gone.
func (v *reconciliation) prune() {
	alive := map[string]bool{}
	for _, pod := range v.pods {
		alive[string(pod.UID)] = true
	}
	keep(v.memory.agents, alive)
	keep(v.memory.managers, alive)
	keep(v.memory.crashes, alive)
	keep(v.memory.assigned, alive)
	keep(v.memory.loading, alive)
}

func keep[T any](of map[string]T, alive map[string]bool) {
	for uid := range of {
		if !alive[uid] {
			delete(of, uid)
		}
	}
}

func (v *reconciliation) reconcileNode() error {
	if v.node.Faults.Has(rules.NodeNotReady) {
		return nil // a dead kubelet reports nothing
	}
	if down, err := v.down(); down || err != nil {
		return err
	}
	if err := v.hold(); err != nil {
		return err
	}
	var plugin *agent
	for _, pod := range v.pods {
		if pod.DeletionTimestamp != nil || pod.Hold != "" {
			continue
		}
		running, err := v.reconcilePod(pod)
		if err != nil {
			return err
		}
		if running != nil && pod.Operand == devicePlugin {
			plugin = running
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

// reconcilePod makes an operand's pod act; it returns an agent whose main process runs.
func (v *reconciliation) reconcilePod(pod *Pod) (*agent, error) {
	switch pod.Operand {
	case nfdWorker:
		return nil, v.publishWorkerFeatures(pod)
	case driver:
		return nil, v.reconcileDriver(pod)
	case migManager:
		if !v.driversLoaded() {
			return nil, nil
		}
		return nil, v.reconcileMIG(pod)
	case gfd, devicePlugin, mpsDaemon:
		if !v.driversLoaded() {
			return nil, nil
		}
		a, err := v.reconcileAgent(pod)
		if err != nil || a == nil || !pod.Running() {
			return nil, err
		}
		if pod.Operand == gfd {
			err = v.publishGFDLabels(pod, a)
		}
		return a, err
	}
	return nil, nil
}
