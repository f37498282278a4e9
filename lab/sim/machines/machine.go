// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package machines

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lab.invalid/sim/machineapi"
	"lab.invalid/sim/rules"
)

// The phases of a Machine.
const (
	provisioning = "Provisioning"
	provisioned  = "Provisioned"
	running      = "Running"
	deleting     = "Deleting"
	failed       = "Failed"
)

const (
	finalizer = "machine.machine.openshift.io"
	// joinsAnnotation is when the instance of a Machine becomes a node, and goneAnnotation when it is terminated, in Unix
	// milliseconds: a restart of the simulator loses no state.
	joinsAnnotation = "lab.accel.gpu/joins"
	goneAnnotation  = "lab.accel.gpu/terminates"
	stateAnnotation = "machine.openshift.io/instance-state"

	createTime    = 20 * time.Second
	bootTime      = 3 * time.Minute
	terminateTime = 10 * time.Second
)

// The messages of clouds, which stand for the kinds of failures: a rejected request fails a Machine, another one is retried.
var (
	quotaMessages = map[string]string{
		"AWS": "error launching instance: You have requested more vCPU capacity than your current vCPU limit of 0 allows for the instance bucket that the" +
			" specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.",
		"Azure": "failed to reconcile machine: Operation could not be completed as it results in exceeding approved standardNCASv3Family Cores quota.",
		"GCP":   "error launching instance: Quota 'NVIDIA_T4_GPUS' exceeded. Limit: 0.0 in region.",
	}
	capacityMessages = map[string]string{
		"AWS":   "error creating EC2 instance: InsufficientInstanceCapacity: We currently do not have sufficient capacity in the Availability Zone you requested.",
		"Azure": "failed to reconcile machine: AllocationFailed: Allocation failed. We do not have sufficient capacity for the requested VM size in this zone.",
		"GCP":   "error launching instance: ZONE_RESOURCE_POOL_EXHAUSTED: The zone does not have enough resources available to fulfill the request.",
	}
)

// reconcileMachine moves a Machine one step further in its life.
func (s *Simulator) reconcileMachine(ctx context.Context, machine *machineapi.Machine, settings *settings) error {
	if machine.DeletionTimestamp != nil {
		return s.reconcileDeletion(ctx, machine, settings)
	}
	if !slices.Contains(machine.Finalizers, finalizer) {
		return s.patch(ctx, machineapi.Machines, machine.Name, object{"metadata": object{"finalizers": append(slices.Clone(machine.Finalizers), finalizer)}})
	}
	set := ownerSet(machine)
	status := machine.Status
	if status.Phase == failed {
		return nil
	}
	if machine.Spec.ProviderID == "" {
		return s.create(ctx, machine, settings, set)
	}
	if _, lost := settings.fault(instanceLost, set); lost {
		return s.lose(ctx, machine)
	}
	node := s.nodeOf(machine)
	if node == nil && status.NodeRef == nil {
		if err := s.setPhase(ctx, machine, provisioned, status); err != nil {
			return err
		}
		if _, never := settings.fault(neverJoins, set); never || !isDue(machine, joinsAnnotation) {
			return nil
		}
		return s.join(ctx, machine)
	}
	if node == nil {
		return nil // the node of a running machine was deleted, and its kubelet does not register again
	}
	if err := s.link(ctx, machine, node); ignoreGone(err) != nil {
		return err
	}
	if status.NodeRef == nil {
		if err := s.admit(ctx, node); err != nil {
			return err
		}
	}
	status.NodeRef = &corev1.ObjectReference{Kind: "Node", Name: node.Name, UID: node.UID}
	return s.setPhase(ctx, machine, running, status)
}

// create asks the cloud for the instance of a Machine.
func (s *Simulator) create(ctx context.Context, machine *machineapi.Machine, settings *settings, set string) error {
	status := machine.Status
	status.Conditions = setCondition(status.Conditions, "InstanceExists", "False", "InstanceNotCreated", "Instance has not been created")
	if status.Phase == "" {
		return s.setPhase(ctx, machine, provisioning, status)
	}
	if _, waits := settings.fault(stuck, set); waits {
		return nil
	}
	found, err := s.options.Cloud.instance(machine.Spec.ProviderSpec.Value)
	if _, exceeded := settings.fault(quota, set); exceeded && err == nil {
		err = fmt.Errorf("%s", quotaMessages[s.options.Cloud.Platform])
	}
	if err != nil {
		status.ErrorReason, status.ErrorMessage = "InvalidConfiguration", err.Error()
		s.events.record(ctx, reference(machine), "machine-controller", corev1.EventTypeWarning, "FailedCreate", err.Error())
		if err := s.annotate(ctx, machine, object{stateAnnotation: "Unknown"}); err != nil {
			return err
		}
		return s.setPhase(ctx, machine, failed, status)
	}
	if _, empty := settings.fault(noCapacity, set); empty {
		message := capacityMessages[s.options.Cloud.Platform]
		s.events.record(ctx, reference(machine), "machine-controller", corev1.EventTypeWarning, "FailedCreate", message)
		status.ProviderStatus = object{"conditions": []any{creation(status.ProviderStatus, "False", "MachineCreationFailed", message)}}
		return s.setPhase(ctx, machine, provisioning, status)
	}
	if time.Since(machine.CreationTimestamp.Time) < s.scaled(settings.seconds("create-seconds", createTime)) {
		return nil
	}
	address := address(machine.Name)
	name := s.options.Cloud.nodeName(machine.Name, address, found.region)
	status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeInternalDNS, Address: name}, {Type: corev1.NodeHostName, Address: name}}
	status.ProviderStatus = object{"instanceState": "running", "conditions": []any{creation(status.ProviderStatus, "True", "MachineCreationSucceeded", "Machine successfully created")}}
	status.Conditions = setCondition(status.Conditions, "InstanceExists", "True", "", "")
	if err := s.setPhase(ctx, machine, provisioned, status); err != nil {
		return err
	}
	s.events.record(ctx, reference(machine), "machine-controller", corev1.EventTypeNormal, "Create", "Created Machine "+machine.Name)
	joins := time.Now().Add(s.scaled(settings.seconds("boot-seconds", bootTime)))
	labels := object{"machine.openshift.io/instance-type": found.name, "machine.openshift.io/region": found.region, "machine.openshift.io/zone": found.zone}
	return s.patch(ctx, machineapi.Machines, machine.Name, object{
		"metadata": object{"labels": labels, "annotations": object{stateAnnotation: "running", joinsAnnotation: strconv.FormatInt(joins.UnixMilli(), 10)}},
		"spec":     object{"providerID": s.options.Cloud.providerID(machine.Name, string(machine.UID), found)},
	})
}

// lose simulates an instance that was terminated in the cloud: the Machine fails, and its node stops.
func (s *Simulator) lose(ctx context.Context, machine *machineapi.Machine) error {
	status := machine.Status
	status.Conditions = setCondition(status.Conditions, "InstanceExists", "False", "InstanceMissing", "Instance not found on provider")
	status.ErrorMessage = "can't find created instance"
	if node := s.nodeOf(machine); node != nil {
		faults := node.Annotations[faultsAnnotation]
		if !rules.ParseFaults(faults).Has(rules.NodeNotReady) {
			if err := s.setFaults(ctx, node, rules.AddFault(faults, rules.NodeNotReady)); err != nil {
				return err
			}
		}
	}
	if err := s.annotate(ctx, machine, object{stateAnnotation: "Unknown"}); err != nil {
		return err
	}
	return s.setPhase(ctx, machine, failed, status)
}

// setPhase writes the status of a Machine with a phase, if anything differs.
func (s *Simulator) setPhase(ctx context.Context, machine *machineapi.Machine, phase string, status machineapi.MachineStatus) error {
	status.Phase = phase
	status.Conditions = hooks(status.Conditions, machine.Spec.LifecycleHooks)
	if reflect.DeepEqual(status, machine.Status) {
		return nil
	}
	now := metav1.Now()
	status.LastUpdated = &now
	body, err := plain(status)
	if err != nil {
		return err
	}
	return s.patch(ctx, machineapi.Machines, machine.Name, object{"status": body}, "status")
}

// hooks returns the conditions that say whether lifecycle hooks block the deletion.
func hooks(conditions []machineapi.Condition, hooks machineapi.Hooks) []machineapi.Condition {
	for _, one := range []struct {
		kind, what string
		hooks      []machineapi.Hook
	}{{"Drainable", "Drain", hooks.PreDrain}, {"Terminable", "Terminate", hooks.PreTerminate}} {
		if len(one.hooks) > 0 {
			conditions = setCondition(conditions, one.kind, "False", "HookPresent", fmt.Sprintf("%s operation currently blocked by: %+v", one.what, one.hooks))
		} else {
			conditions = setCondition(conditions, one.kind, "True", "", "")
		}
	}
	return conditions
}

func (s *Simulator) annotate(ctx context.Context, machine *machineapi.Machine, annotations object) error {
	same := true
	for key, value := range annotations {
		same = same && machine.Annotations[key] == value
	}
	if same {
		return nil
	}
	return s.patch(ctx, machineapi.Machines, machine.Name, object{"metadata": object{"annotations": annotations}})
}

// setCondition returns the conditions with one of them replaced; its transition time is that of the last change.
func setCondition(conditions []machineapi.Condition, kind, status, reason, message string) []machineapi.Condition {
	found := slices.Clone(conditions)
	fresh := machineapi.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second))}
	if status == "False" {
		fresh.Severity = "Warning"
	}
	for i := range found {
		if found[i].Type == kind {
			if found[i].Status == status {
				fresh.LastTransitionTime = found[i].LastTransitionTime
			}
			found[i] = fresh
			return found
		}
	}
	return append(found, fresh)
}

// creation returns the provider's condition about the creation of the instance, with the time of its last change.
func creation(before map[string]any, status, reason, message string) object {
	fresh := object{"type": "MachineCreation", "status": status, "reason": reason, "message": message, "lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}
	conditions, _ := before["conditions"].([]any)
	for _, one := range conditions {
		if last, valid := one.(object); valid && last["status"] == status {
			fresh = maps.Clone(last)
			fresh["reason"], fresh["message"] = reason, message
		}
	}
	return fresh
}

func ownerSet(machine *machineapi.Machine) string {
	if controller := metav1.GetControllerOf(machine); controller != nil {
		return controller.Name
	}
	return ""
}

func isDue(machine *machineapi.Machine, annotation string) bool {
	milliseconds, err := strconv.ParseInt(machine.Annotations[annotation], 10, 64)
	return err == nil && !time.Now().Before(time.UnixMilli(milliseconds))
}
