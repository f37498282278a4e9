// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package machines

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"lab.invalid/sim/autoscaler"
	"lab.invalid/sim/machineapi"
)

const (
	// scanInterval is the pause between two loops of the autoscaler.
	scanInterval = 10 * time.Second
	shortestScan = 200 * time.Millisecond
	// backoff is how long the autoscaler does not scale up a group whose machine failed.
	backoff = 5 * time.Minute
	// maxNodeProvisionTime is the default of the ClusterAutoscaler's field.
	maxNodeProvisionTime = 15 * time.Minute
	prioritiesName       = "cluster-autoscaler-priority-expander"
	component            = "cluster-autoscaler"
	seenInCache          = 10 * time.Second
)

// scaler is the running cluster autoscaler; a restart forgets its memory, as that of the real one does.
type scaler struct {
	*Simulator
	cached   map[string]*corev1.Node
	backoff  map[string]time.Time
	unneeded map[string]time.Time // node -> since when
	added    time.Time
	removed  time.Time
	failed   time.Time
}

func newScaler(s *Simulator) *scaler {
	return &scaler{Simulator: s, cached: map[string]*corev1.Node{}, backoff: map[string]time.Time{}, unneeded: map[string]time.Time{}}
}

func (s *scaler) run(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		settings := loadSettings(s.options.Settings)
		if _, stopped := settings.fault(scalerPaused, ""); stopped {
			return
		}
		s.report(ctx, s.loop(ctx))
	}, max(s.scaled(scanInterval), shortestScan))
}

// state returns what one loop reads.
func (s *scaler) state() *autoscaler.State {
	state := &autoscaler.State{Rules: s.options.Rules, Now: time.Now(), Cached: s.cached, Backoff: s.backoff, Scaled: s.scaled, Priorities: s.priorities()}
	state.MachineSets = list[*machineapi.MachineSet](s.sets)
	state.Machines = list[*machineapi.Machine](s.machines)
	state.Nodes = list[*corev1.Node](s.nodes)
	state.Pods = list[*corev1.Pod](s.pods)
	for _, one := range list[*machineapi.ClusterAutoscaler](s.cluster) {
		if one.Name == autoscaler.DefaultClusterScaler && one.DeletionTimestamp == nil {
			state.Autoscaler = one
		}
	}
	slices.SortFunc(state.Nodes, func(a, b *corev1.Node) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return state
}

func list[T any](informer cache.SharedIndexInformer) []T {
	var found []T
	for _, object := range informer.GetStore().List() {
		found = append(found, object.(T))
	}
	return found
}

func (s *scaler) priorities() map[int][]string {
	found := map[int][]string{}
	for _, configMap := range list[*corev1.ConfigMap](s.configMaps) {
		if err := yaml.Unmarshal([]byte(configMap.Data["priorities"]), &found); err != nil {
			klog.ErrorS(err, "ignoring invalid priorities", "configmap", configMap.Name)
		}
	}
	return found
}

// loop is one loop of the autoscaler: failed machines, then a scale-up, otherwise a scale-down.
func (s *scaler) loop(ctx context.Context) error {
	state := s.state()
	if state.Autoscaler == nil {
		clear(s.unneeded)
		return nil
	}
	if removed, err := s.removeFailed(ctx, state); removed || err != nil {
		return err
	}
	result := autoscaler.Decide(state)
	if result.Group != "" {
		klog.InfoS("scaling up", "machineset", result.Group, "from", result.From, "to", result.To)
		if err := s.resize(ctx, result.Group, result.To); err != nil {
			return err
		}
		s.added = time.Now()
		for _, pod := range result.Pods {
			s.podEvent(ctx, pod, "TriggeredScaleUp", "pod triggered scale-up: [{MachineSet/"+machineapi.Namespace+"/"+result.Group+" "+
				strconv.Itoa(result.From)+"->"+strconv.Itoa(result.To)+" (max: "+strconv.Itoa(result.Max)+")}]")
		}
		return nil
	}
	for _, pod := range state.Pods {
		if len(result.Rejected[pod.Namespace+"/"+pod.Name]) > 0 {
			s.podEvent(ctx, pod, "NotTriggerScaleUp", result.Message(pod))
		}
	}
	return s.scaleDown(ctx, state)
}

func (s *scaler) podEvent(ctx context.Context, pod *corev1.Pod, reason, message string) {
	of := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	s.events.record(ctx, of, component, corev1.EventTypeNormal, reason, message)
}

// resize sets the replicas of a MachineSet, and waits until the cache shows it.
func (s *scaler) resize(ctx context.Context, set string, replicas int) error {
	if err := s.patch(ctx, machineapi.MachineSets, set, object{"spec": object{"replicas": replicas}}); err != nil {
		return err
	}
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, seenInCache, true, func(context.Context) (bool, error) {
		found, exists, err := s.sets.GetStore().GetByKey(machineapi.Namespace + "/" + set)
		return !exists || *found.(*machineapi.MachineSet).Spec.Replicas == int32(replicas), err
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil // another client has changed it again
	}
	return err
}

// removeFailed deletes machines of node groups that failed before they were nodes, or did not become nodes in time, and
// does not scale up their groups for a while.
func (s *scaler) removeFailed(ctx context.Context, state *autoscaler.State) (bool, error) {
	limit := s.scaled(autoscaler.Duration(state.Autoscaler.Spec.MaxNodeProvisionTime, maxNodeProvisionTime))
	for _, set := range state.MachineSets {
		group, _ := autoscaler.NewGroup(set, s.options.Rules)
		if group == nil || group.Replicas <= group.Min {
			continue
		}
		for _, machine := range state.Machines {
			late := time.Since(machine.CreationTimestamp.Time) > limit
			if ownerSet(machine) != set.Name || machine.Status.NodeRef != nil || machine.DeletionTimestamp != nil || (machine.Status.Phase != failed && !late) {
				continue
			}
			klog.InfoS("removing a machine that did not become a node", "machine", machine.Name, "phase", machine.Status.Phase)
			s.backoff[set.Name] = time.Now().Add(s.scaled(backoff))
			return true, s.remove(ctx, machine, group)
		}
	}
	return false, nil
}

// remove marks a Machine for deletion and shrinks its MachineSet, as the autoscaler does.
func (s *scaler) remove(ctx context.Context, machine *machineapi.Machine, group *autoscaler.Group) error {
	marks := object{autoscaler.DeleteAnnotation: time.Now().UTC().String()}
	if s.options.Rules.OldKeys {
		marks[autoscaler.OldDeleteAnnotation] = marks[autoscaler.DeleteAnnotation]
	}
	if err := s.annotate(ctx, machine, marks); err != nil {
		return err
	}
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, seenInCache, true, func(context.Context) (bool, error) {
		found, exists, err := s.machines.GetStore().GetByKey(machineapi.Namespace + "/" + machine.Name)
		return !exists || found.(*machineapi.Machine).Annotations[autoscaler.DeleteAnnotation] != "", err
	})
	if err != nil {
		return err
	}
	return s.resize(ctx, group.Name, group.Replicas-1)
}

// scaleDown removes nodes that have been unneeded for long enough.
func (s *scaler) scaleDown(ctx context.Context, state *autoscaler.State) error {
	unneeded, after := autoscaler.Unneeded(state)
	now := time.Now()
	for node := range s.unneeded {
		if _, still := unneeded[node]; !still {
			delete(s.unneeded, node)
		}
	}
	for node := range unneeded {
		if _, known := s.unneeded[node]; !known {
			s.unneeded[node] = now
		}
	}
	delayAdd, delayDelete, delayFailure := autoscaler.DelayAfterAdd, scanInterval, autoscaler.DelayAfterFailure
	if down := state.Autoscaler.Spec.ScaleDown; down != nil {
		delayAdd = autoscaler.Duration(down.DelayAfterAdd, delayAdd)
		delayDelete = autoscaler.Duration(down.DelayAfterDelete, delayDelete)
		delayFailure = autoscaler.Duration(down.DelayAfterFailure, delayFailure)
	}
	if now.Sub(s.added) < s.scaled(delayAdd) || now.Sub(s.removed) < s.scaled(delayDelete) || now.Sub(s.failed) < s.scaled(delayFailure) {
		return nil
	}
	for _, node := range state.Nodes {
		since, candidate := s.unneeded[node.Name]
		if !candidate || now.Sub(since) < after[node.Name] {
			continue
		}
		if err := s.removeNode(ctx, state, node); err != nil {
			s.failed = time.Now()
			return err
		}
		s.removed = time.Now()
		delete(s.unneeded, node.Name)
		return nil
	}
	return nil
}

func (s *scaler) removeNode(ctx context.Context, state *autoscaler.State, node *corev1.Node) error {
	for _, machine := range state.Machines {
		if node.Annotations[autoscaler.MachineAnnotation] != machineapi.Namespace+"/"+machine.Name {
			continue
		}
		for _, set := range state.MachineSets {
			group, _ := autoscaler.NewGroup(set, s.options.Rules)
			if group == nil || set.Name != ownerSet(machine) {
				continue
			}
			klog.InfoS("removing an unneeded node", "node", node.Name, "machineset", set.Name)
			taints := append(slices.Clone(node.Spec.Taints), corev1.Taint{Key: autoscaler.ToBeDeleted, Value: strconv.FormatInt(time.Now().Unix(), 10), Effect: corev1.TaintEffectNoSchedule})
			if err := s.patchNode(ctx, node.Name, object{"metadata": object{"resourceVersion": node.ResourceVersion}, "spec": object{"taints": taints}}); err != nil {
				return err
			}
			of := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
			s.events.record(ctx, of, component, corev1.EventTypeNormal, "ScaleDown", "marked the node as toBeDeleted/unschedulable")
			// The Machine API drains the node, which the autoscaler also does before.
			return s.remove(ctx, machine, group)
		}
	}
	return nil
}

// reconcileScaler is the Cluster Autoscaler Operator, for one MachineAutoscaler: it annotates the MachineSet.
func (s *Simulator) reconcileScaler(ctx context.Context, scaler *machineapi.MachineAutoscaler) error {
	set := s.set(scaler.Spec.ScaleTargetRef.Name)
	if scaler.DeletionTimestamp != nil {
		if !slices.Contains(scaler.Finalizers, scalerFinalizer) {
			return nil
		}
		if set != nil && set.Annotations[autoscaler.OwnerAnnotation] == scaler.Namespace+"/"+scaler.Name {
			if err := s.saveAnnotations(ctx, set, autoscaler.Released(set)); err != nil {
				return err
			}
		}
		kept := slices.DeleteFunc(slices.Clone(scaler.Finalizers), func(name string) bool { return name == scalerFinalizer })
		return s.patch(ctx, machineapi.MachineAutoscalers, scaler.Name, object{"metadata": object{"finalizers": kept}})
	}
	if last := scaler.Status.LastTargetRef; last != nil && *last != scaler.Spec.ScaleTargetRef {
		if former := s.set(last.Name); former != nil && former.Annotations[autoscaler.OwnerAnnotation] == scaler.Namespace+"/"+scaler.Name {
			if err := s.saveAnnotations(ctx, former, autoscaler.Released(former)); err != nil {
				return err
			}
		}
		return s.setTarget(ctx, scaler)
	}
	if set == nil || scaler.Spec.ScaleTargetRef.Kind != "MachineSet" {
		s.events.record(ctx, reference(scaler), "machine_autoscaler_controller", corev1.EventTypeWarning, "FailedGetTarget",
			`Error getting target: machinesets.machine.openshift.io "`+scaler.Spec.ScaleTargetRef.Name+`" not found`)
		return nil
	}
	annotations, changed, err := autoscaler.Target(set, scaler)
	if err != nil {
		s.events.record(ctx, reference(scaler), "machine_autoscaler_controller", corev1.EventTypeWarning, "FailedSetOwner", err.Error())
		return nil
	}
	if scaler.Status.LastTargetRef == nil {
		return s.setTarget(ctx, scaler)
	}
	if !slices.Contains(scaler.Finalizers, scalerFinalizer) {
		return s.patch(ctx, machineapi.MachineAutoscalers, scaler.Name, object{"metadata": object{"finalizers": append(slices.Clone(scaler.Finalizers), scalerFinalizer)}})
	}
	if !changed {
		return nil
	}
	if warning := autoscaler.AcceleratorWarning(set); warning != "" {
		s.events.record(ctx, reference(set), "machine_autoscaler_controller", corev1.EventTypeWarning, "InvalidOrMissingGPUAcceleratorLabel", warning)
	}
	return s.saveAnnotations(ctx, set, annotations)
}

const scalerFinalizer = "machinetarget.autoscaling.openshift.io"

func (s *Simulator) set(name string) *machineapi.MachineSet {
	found, exists, err := s.sets.GetStore().GetByKey(machineapi.Namespace + "/" + name)
	if err != nil || !exists {
		return nil
	}
	return found.(*machineapi.MachineSet)
}

func (s *Simulator) setTarget(ctx context.Context, scaler *machineapi.MachineAutoscaler) error {
	target, err := json.Marshal(scaler.Spec.ScaleTargetRef)
	if err != nil {
		return err
	}
	return s.patch(ctx, machineapi.MachineAutoscalers, scaler.Name, object{"status": object{"lastTargetRef": json.RawMessage(target)}}, "status")
}

// saveAnnotations replaces the annotations of a MachineSet.
func (s *Simulator) saveAnnotations(ctx context.Context, set *machineapi.MachineSet, annotations map[string]string) error {
	changed := object{}
	for key := range set.Annotations {
		if _, kept := annotations[key]; !kept {
			changed[key] = nil
		}
	}
	for key, value := range annotations {
		if now, present := set.Annotations[key]; !present || now != value {
			changed[key] = value
		}
	}
	return s.patch(ctx, machineapi.MachineSets, set.Name, object{"metadata": object{"annotations": changed, "resourceVersion": set.ResourceVersion}})
}
