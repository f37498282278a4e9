// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"lab.invalid/sim/rules"
)

// hold keeps the pods that a fault names from running. kwok may have been quicker: such a pod is put back.
func (v *reconciliation) hold() error {
	for _, pod := range v.pods {
		if !pod.Operator() || pod.DeletionTimestamp != nil {
			continue
		}
		fault := v.holdReason(pod)
		if fault != pod.Hold {
			if err := v.setHold(pod, fault); err != nil {
				return err
			}
		}
		if fault == "" {
			continue
		}
		if err := v.keepPending(pod, fault); err != nil {
			return err
		}
	}
	return nil
}

func (v *reconciliation) holdReason(pod *Pod) string {
	switch {
	case v.node.Faults.Pending(pod.Owner.Name):
		return rules.OperandPending
	case pod.Operand == validator && (v.node.Faults.Has(rules.ValidatorFails) || v.nothingToValidate(pod)):
		return rules.ValidatorFails
	case v.driverFailure() != "" && slices.Contains(rules.DriverDependents, pod.Owner.Name):
		return rules.DriverBroken
	}
	return ""
}

// nothingToValidate tells whether a validator was started on GPUs that have MIG on and no device: it can use none of them.
func (v *reconciliation) nothingToValidate(pod *Pod) bool {
	layout := v.layout()
	return layout.Unusable(v.node.Hardware) && pod.CreationTimestamp.Unix() >= layout.Changed
}

// setHold also makes an agent forget what it had loaded: it will start anew.
func (v *reconciliation) setHold(pod *Pod, fault string) error {
	annotations := object{holdAnnotation: fault, stateAnnotation: nil}
	if fault == "" {
		annotations = object{holdAnnotation: nil}
	}
	delete(v.memory.agents, string(pod.UID))
	delete(v.memory.managers, string(pod.UID))
	delete(v.memory.crashes, string(pod.UID))
	delete(v.memory.loading, string(pod.UID))
	return v.patch(pod, object{"annotations": annotations}, nil, "")
}

func (v *reconciliation) keepPending(pod *Pod, fault string) error {
	if fault == rules.ValidatorFails && len(pod.Inits) > 0 {
		c := v.memory.crashes[string(pod.UID)]
		if c == nil {
			c = &crash{}
			v.memory.crashes[string(pod.UID)] = c
		}
		if pod.Phase != corev1.PodRunning && c.waiting(v) {
			return nil
		}
		c.fail(errors.New("validation failed: no GPU resources are discovered by the node"), v)
		return v.initFails(pod, pod.Inits[len(pod.Inits)-1].Name, c)
	}
	if fault == rules.DriverBroken && len(pod.Inits) > 0 {
		return v.initWaits(pod)
	}
	if pod.Phase == corev1.PodRunning {
		return v.pending(pod, nil, "ContainerCreating")
	}
	return nil
}
