// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"lab.invalid/sim/rules"
)

// noRuntime holds pods whose runtime class has a handler that containerd does not know.
const noRuntime = "no-runtime"

// hold prevents the pods of a fault from running. A pod that kwok has already started is reset to Pending.
func (r *reconciliation) hold() error {
	for _, pod := range r.pods {
		if !pod.Operator() || pod.DeletionTimestamp != nil {
			continue
		}
		fault := r.holdReason(pod)
		if fault != pod.Hold {
			if err := r.setHold(pod, fault); err != nil {
				return err
			}
		}
		if fault == "" {
			continue
		}
		if err := r.keepPending(pod, fault); err != nil {
			return err
		}
	}
	return nil
}

func (r *reconciliation) holdReason(pod *Pod) string {
	switch {
	case r.node.Faults.Pending(pod.Owner.Name):
		return rules.OperandPending
	case pod.Operand == validator && (r.node.Faults.Has(rules.ValidatorFails) || r.nothingToValidate(pod)):
		return rules.ValidatorFails
	case (r.driverFailure() != "" || r.unloadFails()) && slices.Contains(rules.DriverDependents, pod.Owner.Name):
		return rules.DriverBroken
	case r.lacksRuntime(pod):
		return noRuntime
	}
	return ""
}

// nothingToValidate returns whether a validator was started while all GPUs had MIG on and no devices.
func (r *reconciliation) nothingToValidate(pod *Pod) bool {
	layout := r.layout()
	return layout.Unusable(r.node.Hardware) && pod.CreationTimestamp.Unix() >= layout.Changed
}

// setHold changes the hold annotation and resets the state of the agent, so that it restarts.
func (r *reconciliation) setHold(pod *Pod, fault string) error {
	annotations := object{holdAnnotation: fault, stateAnnotation: nil}
	if fault == "" {
		annotations = object{holdAnnotation: nil}
	}
	delete(r.memory.agents, string(pod.UID))
	delete(r.memory.managers, string(pod.UID))
	delete(r.memory.crashes, string(pod.UID))
	delete(r.memory.loading, string(pod.UID))
	delete(r.memory.unloads, string(pod.UID))
	return r.patch(pod, object{"annotations": annotations}, nil, "")
}

func (r *reconciliation) keepPending(pod *Pod, fault string) error {
	if fault == noRuntime {
		return r.keepWithoutSandbox(pod)
	}
	if fault == rules.ValidatorFails && len(pod.Inits) > 0 {
		c := r.memory.crashes[string(pod.UID)]
		if c == nil {
			c = &crash{}
			r.memory.crashes[string(pod.UID)] = c
		}
		if pod.Phase != corev1.PodRunning && c.waiting(r) {
			return nil
		}
		c.fail(errors.New("validation failed: no GPU resources are discovered by the node"), r)
		return r.initFails(pod, pod.Inits[len(pod.Inits)-1].Name, c)
	}
	if fault == rules.DriverBroken && len(pod.Inits) > 0 {
		return r.initWaits(pod)
	}
	if pod.Phase == corev1.PodRunning {
		return r.pending(pod, nil, "ContainerCreating")
	}
	return nil
}
