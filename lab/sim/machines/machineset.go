// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package machines

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/rand"

	"lab.invalid/sim/autoscaler"
	"lab.invalid/sim/machineapi"
)

// reconcileSet creates and deletes Machines, and updates the status and the capacity annotations of a MachineSet.
func (s *Simulator) reconcileSet(ctx context.Context, set *machineapi.MachineSet) error {
	if set.DeletionTimestamp != nil {
		return nil // its Machines are deleted by the garbage collector
	}
	if err := s.annotateCapacity(ctx, set); err != nil {
		return err
	}
	selector, err := metav1.LabelSelectorAsSelector(&set.Spec.Selector)
	if err != nil || selector.Empty() || !selector.Matches(labels.Set(set.Spec.Template.Metadata.Labels)) {
		s.events.record(ctx, reference(set), "machineset-controller", corev1.EventTypeWarning, "ReconcileError",
			fmt.Sprintf("%q machineset validation failed: `selector` does not match template `labels`", set.Name))
		return nil
	}
	active := s.machinesOf(set, selector)
	if set.Spec.Replicas != nil && !s.awaits(set.Name) {
		if err := s.syncReplicas(ctx, set, active); err != nil {
			return err
		}
	}
	return s.updateSetStatus(ctx, set, active)
}

// machinesOf returns the Machines of a MachineSet that are not being deleted, by name.
func (s *Simulator) machinesOf(set *machineapi.MachineSet, selector labels.Selector) []*machineapi.Machine {
	var found []*machineapi.Machine
	for _, object := range s.machines.GetStore().List() {
		machine := object.(*machineapi.Machine)
		controller := metav1.GetControllerOf(machine)
		if machine.DeletionTimestamp == nil && controller != nil && controller.UID == set.UID && selector.Matches(labels.Set(machine.Labels)) {
			found = append(found, machine)
		}
	}
	slices.SortFunc(found, func(a, b *machineapi.Machine) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// awaits returns whether the cache does not show all Machines yet that were created or deleted for a MachineSet.
func (s *Simulator) awaits(set string) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for name, created := range s.expected[set] {
		object, exists, _ := s.machines.GetStore().GetByKey(machineapi.Namespace + "/" + name)
		gone := !exists || object.(*machineapi.Machine).DeletionTimestamp != nil
		if created == gone {
			return true
		}
		delete(s.expected[set], name)
	}
	return false
}

func (s *Simulator) expect(set, machine string, created bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.expected[set] == nil {
		s.expected[set] = map[string]bool{}
	}
	s.expected[set][machine] = created
}

func (s *Simulator) syncReplicas(ctx context.Context, set *machineapi.MachineSet, active []*machineapi.Machine) error {
	wanted := int(*set.Spec.Replicas)
	for range wanted - len(active) {
		machine, err := newMachine(set)
		if err != nil {
			return err
		}
		if _, err := s.dynamic.Resource(machineapi.Machines).Namespace(set.Namespace).Create(ctx, machine, metav1.CreateOptions{}); err != nil {
			return err
		}
		s.expect(set.Name, machine.GetName(), true)
	}
	if len(active) <= wanted {
		return nil
	}
	for _, machine := range toDelete(active, len(active)-wanted, set.Spec.DeletePolicy, time.Now()) {
		err := s.dynamic.Resource(machineapi.Machines).Namespace(set.Namespace).Delete(ctx, machine.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		s.expect(set.Name, machine.Name, false)
	}
	return nil
}

func newMachine(set *machineapi.MachineSet) (*unstructured.Unstructured, error) {
	owner := *metav1.NewControllerRef(set, machineapi.MachineSetKind)
	machine := &machineapi.Machine{
		TypeMeta: metav1.TypeMeta{APIVersion: machineapi.MachineKind.GroupVersion().String(), Kind: machineapi.MachineKind.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Name: set.Name + "-" + rand.String(5), Namespace: set.Namespace, Labels: set.Spec.Template.Metadata.Labels,
			Annotations: set.Spec.Template.Metadata.Annotations, OwnerReferences: []metav1.OwnerReference{owner},
		},
		Spec: set.Spec.Template.Spec,
	}
	content, err := plain(machine)
	if err != nil {
		return nil, err
	}
	fields := content.(object)
	delete(fields, "status")
	return &unstructured.Unstructured{Object: fields}, nil
}

// toDelete returns the Machines that a smaller MachineSet deletes first (delete_policy.go of the Machine API).
func toDelete(active []*machineapi.Machine, count int, policy string, now time.Time) []*machineapi.Machine {
	sorted := slices.Clone(active)
	slices.SortStableFunc(sorted, func(a, b *machineapi.Machine) int {
		return cmp.Compare(deletePriority(b, policy, now), deletePriority(a, policy, now))
	})
	return sorted[:min(count, len(sorted))]
}

func deletePriority(machine *machineapi.Machine, policy string, now time.Time) float64 {
	marked := machine.Annotations[autoscaler.DeleteAnnotation] != "" || machine.Annotations[autoscaler.OldDeleteAnnotation] != ""
	failed := machine.Status.ErrorReason != "" || machine.Status.ErrorMessage != ""
	const days = 100 * 24 * 60 * 60
	age := 50 * (1 - math.Exp(-now.Sub(machine.CreationTimestamp.Time).Seconds()/days))
	switch {
	case policy == "Oldest" && (marked || failed), policy == "Newest" && (marked || failed):
		return 100
	case policy == "Oldest":
		return age
	case policy == "Newest":
		return 100 - age
	case marked || failed:
		return 50
	case machine.Status.NodeRef == nil:
		return 40
	}
	return 20
}

func (s *Simulator) updateSetStatus(ctx context.Context, set *machineapi.MachineSet, active []*machineapi.Machine) error {
	status := machineapi.MachineSetStatus{Replicas: int32(len(active)), ObservedGeneration: set.Generation}
	template := labels.SelectorFromSet(set.Spec.Template.Metadata.Labels)
	for _, machine := range active {
		if template.Matches(labels.Set(machine.Labels)) {
			status.FullyLabeledReplicas++
		}
		node := s.nodeOf(machine)
		if node == nil {
			continue
		}
		if since, ready := readySince(node); ready {
			status.ReadyReplicas++
			if time.Since(since) >= time.Duration(set.Spec.MinReadySeconds)*time.Second {
				status.AvailableReplicas++
			}
		}
	}
	if status == set.Status {
		return nil
	}
	body := object{
		"replicas": status.Replicas, "fullyLabeledReplicas": status.FullyLabeledReplicas, "readyReplicas": status.ReadyReplicas,
		"availableReplicas": status.AvailableReplicas, "observedGeneration": status.ObservedGeneration,
	}
	return s.patch(ctx, machineapi.MachineSets, set.Name, object{"status": body}, "status")
}

// annotateCapacity writes the old capacity annotations, as the provider's MachineSet controller does at each reconciliation, from the
// instance type, which must be known.
func (s *Simulator) annotateCapacity(ctx context.Context, set *machineapi.MachineSet) error {
	wanted := map[string]string{}
	cloud, provider := s.options.Cloud, set.Spec.Template.Spec.ProviderSpec.Value
	found, err := cloud.instance(provider)
	if err != nil {
		s.events.record(ctx, reference(set), "machineset-controller", corev1.EventTypeWarning, "FailedUpdate",
			"Failed to set autoscaling from zero annotations, instance type unknown")
		return nil
	}
	wanted["vCPU"], wanted["memoryMb"] = strconv.FormatInt(found.CPUs, 10), strconv.FormatInt(found.MemoryMiB, 10)
	wanted["GPU"] = strconv.FormatInt(found.GPUs, 10)
	changed := object{}
	for key, value := range wanted {
		if key = autoscaler.OldPrefix + key; set.Annotations[key] != value {
			changed[key] = value
		}
	}
	if cloud.Platform == "AWS" {
		found := autoscaler.LabelsAnnotation(set.Annotations)
		if found[corev1.LabelArchStable] != "amd64" {
			found[corev1.LabelArchStable] = "amd64"
			var pairs []string
			for _, key := range slices.Sorted(maps.Keys(found)) {
				pairs = append(pairs, key+"="+found[key])
			}
			changed[autoscaler.Prefix+"labels"] = strings.Join(pairs, ",")
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return s.patch(ctx, machineapi.MachineSets, set.Name, object{"metadata": object{"annotations": changed}})
}

func reference(of metav1.Object) corev1.ObjectReference {
	kind := machineapi.MachineKind
	switch of.(type) {
	case *machineapi.MachineSet:
		kind = machineapi.MachineSetKind
	case *machineapi.MachineAutoscaler:
		kind = machineapi.MachineAutoscalerKind
	}
	return corev1.ObjectReference{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: of.GetNamespace(), Name: of.GetName(), UID: of.GetUID()}
}

func readySince(node *corev1.Node) (time.Time, bool) {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.LastTransitionTime.Time, condition.Status == corev1.ConditionTrue
		}
	}
	return time.Time{}, false
}
