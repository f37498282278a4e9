// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package machines

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lab.invalid/sim/machineapi"
)

const excludeDrain = "machine.openshift.io/exclude-node-draining"

// reconcileDeletion drains the node of a Machine, terminates its instance, and deletes the node, one step at a time.
func (s *Simulator) reconcileDeletion(ctx context.Context, machine *machineapi.Machine, settings *settings) error {
	if !slices.Contains(machine.Finalizers, finalizer) {
		return nil
	}
	status := machine.Status
	if status.Phase != deleting {
		return s.setPhase(ctx, machine, deleting, status)
	}
	if !isTrue(status.Conditions, "Drained") {
		message := "Drain finished successfully"
		node := s.nodeOf(machine)
		if _, excluded := machine.Annotations[excludeDrain]; excluded || node == nil {
			message = "Node drain skipped"
		} else if len(machine.Spec.LifecycleHooks.PreDrain) > 0 {
			s.events.record(ctx, reference(machine), "machine-drain-controller", corev1.EventTypeNormal, "DrainBlocked", "Drain blocked by pre-drain hook")
			return s.setPhase(ctx, machine, deleting, status)
		} else if problem, err := s.drain(ctx, node); err != nil {
			return err
		} else if problem != "" {
			status.Conditions = setCondition(status.Conditions, "Drained", "False", "DrainError", "could not drain machine: "+problem)
			return s.setPhase(ctx, machine, deleting, status)
		}
		status.Conditions = setCondition(status.Conditions, "Drained", "True", "", message)
		return s.setPhase(ctx, machine, deleting, status)
	}
	if len(machine.Spec.LifecycleHooks.PreTerminate) > 0 {
		return s.setPhase(ctx, machine, deleting, status)
	}
	if _, stays := settings.fault(stuckDelete, ownerSet(machine)); stays && machine.Spec.ProviderID != "" {
		return nil
	}
	if machine.Annotations[goneAnnotation] == "" && machine.Spec.ProviderID != "" {
		gone := time.Now().Add(s.scaled(settings.seconds("terminate-seconds", terminateTime)))
		return s.annotate(ctx, machine, object{goneAnnotation: strconv.FormatInt(gone.UnixMilli(), 10)})
	}
	if machine.Spec.ProviderID != "" && !isDue(machine, goneAnnotation) {
		return nil
	}
	if node := s.nodeOf(machine); node != nil {
		if err := s.core.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	kept := slices.DeleteFunc(slices.Clone(machine.Finalizers), func(name string) bool { return name == finalizer })
	return s.patch(ctx, machineapi.Machines, machine.Name, object{"metadata": object{"finalizers": kept}})
}

// drain cordons a node and evicts its pods, except those of DaemonSets; it returns what still prevents the drain.
func (s *Simulator) drain(ctx context.Context, node *corev1.Node) (string, error) {
	if !node.Spec.Unschedulable {
		if err := s.patchNode(ctx, node.Name, object{"spec": object{"unschedulable": true}}); err != nil {
			return "", err
		}
	}
	objects, err := s.pods.GetIndexer().ByIndex(byNode, node.Name)
	if err != nil {
		return "", err
	}
	var waiting []string
	for _, one := range objects {
		pod := one.(*corev1.Pod)
		controller := metav1.GetControllerOf(pod)
		if controller != nil && (controller.Kind == "DaemonSet" || controller.Kind == "Node") {
			continue
		}
		problem := pod.Namespace + "/" + pod.Name
		if pod.DeletionTimestamp == nil {
			eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}, DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}}
			err := s.core.PolicyV1().Evictions(pod.Namespace).Evict(ctx, eviction)
			if apierrors.IsTooManyRequests(err) {
				problem += ": " + err.Error()
			} else if ignoreGone(err) != nil {
				return "", err
			}
		}
		waiting = append(waiting, problem)
	}
	slices.Sort(waiting)
	return strings.Join(waiting, ", "), nil
}

func isTrue(conditions []machineapi.Condition, kind string) bool {
	return slices.ContainsFunc(conditions, func(c machineapi.Condition) bool { return c.Type == kind && c.Status == "True" })
}
