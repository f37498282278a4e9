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

// memory is the in-memory state of a node's agents and kubelet. State that must survive a restart is in annotations.
type memory struct {
	uid       types.UID
	agents    map[string]*agent
	managers  map[string]*migProcess
	crashes   map[string]*crash
	assigned  map[string]rules.Allocation
	endpoints map[string]*endpoint
	published map[string]string
	loading   map[string]time.Time // when a driver pod completes the load of its driver
	unloads   map[string]*crash    // of the driver managers that could not unload a driver
	mounts    map[string]string    // of a driver pod's license files: the reason of a failure, or empty
	running   map[string]bool      // the driver pods whose container has started
	// Recent writes that the informer may not have received yet: the driver, the license, the MIG layout, the process that a fault has
	// hung, the last handled reboot request, the end of the current reboot and that of the last one.
	driver        string
	driverConfig  string
	license       *rules.License
	statusDue     time.Time // when the kubelet writes a changed number of devices
	hungProcess   string
	layout        *rules.Layout
	rebootRequest string
	rebooting     time.Time
	rebooted      time.Time
}

func newMemory(uid types.UID) *memory {
	return &memory{uid: uid, agents: map[string]*agent{}, managers: map[string]*migProcess{}, crashes: map[string]*crash{},
		assigned: map[string]rules.Allocation{}, published: map[string]string{}, loading: map[string]time.Time{}, unloads: map[string]*crash{}, mounts: map[string]string{}, running: map[string]bool{}}
}

// wakeUp keeps the shortest time until the next scheduled event.
type wakeUp struct {
	after time.Duration
}

func (s *wakeUp) at(when time.Time) {
	after := max(time.Until(when), time.Millisecond)
	if s.after == 0 || after < s.after {
		s.after = after
	}
}

// reconciliation is one reconciliation of one node.
type reconciliation struct {
	*Simulator
	ctx    context.Context
	node   *Node
	pods   []*Pod
	memory *memory
	again  wakeUp
}

// scaledForNode returns the scaled duration of an operation on this machine. Intervals and timeouts of programs are the same
// on all machines: use scaled.
func (r *reconciliation) scaledForNode(d time.Duration) time.Duration {
	if r.node.Hardware == nil || r.node.Hardware.TimeFactor == 0 {
		return r.scaled(d)
	}
	return r.scaled(time.Duration(float64(d) * r.node.Hardware.TimeFactor))
}

// reconcile performs the actions of every agent of a node once; it returns when to reconcile again.
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
	r := &reconciliation{Simulator: s, ctx: ctx, node: node, memory: s.memoryOf(node)}
	for _, pod := range objects {
		r.pods = append(r.pods, pod.(*Pod))
	}
	slices.SortFunc(r.pods, func(a, b *Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	r.prune()
	err = r.reconcileNode()
	return r.again.after, err
}

// prune deletes the state of deleted pods.
func (r *reconciliation) prune() {
	alive := map[string]bool{}
	for _, pod := range r.pods {
		alive[string(pod.UID)] = true
	}
	keep(r.memory.agents, alive)
	keep(r.memory.managers, alive)
	keep(r.memory.crashes, alive)
	keep(r.memory.assigned, alive)
	keep(r.memory.loading, alive)
	keep(r.memory.unloads, alive)
	keep(r.memory.mounts, alive)
	keep(r.memory.running, alive)
}

func keep[T any](of map[string]T, alive map[string]bool) {
	for uid := range of {
		if !alive[uid] {
			delete(of, uid)
		}
	}
}

func (r *reconciliation) reconcileNode() error {
	if r.node.Faults.Has(rules.NodeNotReady) {
		return nil // a stopped kubelet reports nothing
	}
	if down, err := r.down(); down || err != nil {
		return err
	}
	if err := r.hold(); err != nil {
		return err
	}
	if err := r.release(); err != nil {
		return err
	}
	var plugin *agent
	for _, pod := range r.pods {
		if pod.DeletionTimestamp != nil || pod.Hold != "" {
			continue
		}
		running, err := r.reconcilePod(pod)
		if err != nil {
			return err
		}
		if running != nil && pod.Operand == devicePlugin {
			plugin = running
		}
	}
	if err := r.endLicense(); err != nil {
		return err
	}
	if err := r.register(plugin); err != nil {
		return err
	}
	if err := r.admit(plugin); err != nil {
		return err
	}
	return r.recover()
}

// reconcilePod performs the actions of an operand's pod; it returns the agent if its main process is running.
func (r *reconciliation) reconcilePod(pod *Pod) (*agent, error) {
	switch pod.Operand {
	case nfdWorker:
		return nil, r.publishWorkerFeatures(pod)
	case driver:
		return nil, r.reconcileDriver(pod)
	case toolkit:
		return nil, r.reconcileToolkit(pod)
	case migManager:
		if !r.driversLoaded() {
			return nil, nil
		}
		return nil, r.reconcileMIG(pod)
	case gfd, devicePlugin, mpsDaemon:
		if !r.driversLoaded() {
			return nil, nil
		}
		a, err := r.reconcileAgent(pod)
		if err != nil || a == nil || !pod.Running() {
			return nil, err
		}
		if pod.Operand == gfd {
			err = r.publishGFDLabels(pod, a)
		}
		return a, err
	}
	return nil, nil
}
