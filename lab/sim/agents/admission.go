// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lab.invalid/sim/rules"
)

// admit is the kubelet's admission of pods that request devices: a pod gets its devices or fails permanently.
func (r *reconciliation) admit(plugin *agent) error {
	var held []rules.Allocation
	var waiting []*Pod
	for _, pod := range r.pods {
		if len(pod.Requests) == 0 || pod.Ended() {
			continue
		}
		if allocation := r.allocation(pod); allocation != nil {
			held = append(held, allocation)
		} else if pod.DeletionTimestamp == nil {
			waiting = append(waiting, pod)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	pool := rules.DevicePool{Healthy: map[string][]string{}, Used: rules.InUse(held), OnePerRequest: plugin != nil && plugin.config.OnePerRequest()}
	for resource, e := range r.memory.endpoints {
		if e.size > 0 {
			pool.Healthy[resource] = e.ids
		}
	}
	for _, pod := range waiting {
		allocation, refusal := pool.Allocate(pod.Requests)
		if refusal != nil {
			if err := r.reject(pod, refusal); err != nil {
				return err
			}
			continue
		}
		if err := r.assign(pod, allocation); err != nil {
			return err
		}
		held = append(held, allocation)
		pool.Used = rules.InUse(held)
	}
	return nil
}

// allocation returns the devices of a pod, from its annotation or from the most recent write.
func (r *reconciliation) allocation(pod *Pod) rules.Allocation {
	if pod.Devices != "" {
		if allocation, err := rules.ParseAllocation(pod.Devices); err == nil {
			return allocation
		}
	}
	return r.memory.assigned[string(pod.UID)]
}

// assign writes the log before the pod can start, so that it is available as soon as the pod runs.
func (r *reconciliation) assign(pod *Pod, allocation rules.Allocation) error {
	text, err := json.Marshal(allocation)
	if err != nil {
		return err
	}
	annotations := object{rules.DevicesAnnotation: string(text)}
	lines := map[string][]string{}
	for container, resources := range allocation {
		output := r.program(pod, container, rules.Visible(resources)).Run()
		lines[container] = output.Lines
		switch {
		case output.Never:
			annotations[rules.ExitAnnotation] = neverEnds
		case output.Exit != 0:
			annotations[rules.ExitAnnotation] = strconv.Itoa(output.Exit)
			annotations[rules.ExitSecondsAnnotation] = strconv.Itoa(output.Seconds)
		}
	}
	if err := r.logs.write(r.ctx, pod, lines); err != nil {
		return err
	}
	r.memory.assigned[string(pod.UID)] = allocation
	if err := r.patch(pod, object{"annotations": annotations}, nil, ""); err != nil {
		delete(r.memory.assigned, string(pod.UID))
		return err
	}
	return nil
}

// neverEnds is the value of the exit annotation for a program that the kubelet cannot kill.
const neverEnds = "never"

// program returns the command of one of the pod's containers, with the devices that it got.
func (r *reconciliation) program(pod *Pod, container string, visible []string) rules.Program {
	program := rules.Program{Node: r.node.Name, Hardware: r.hardware(), Layout: r.layout(), Faults: r.node.Faults, Visible: visible, Host: pod.Name}
	for _, c := range append(slices.Clone(pod.Inits), pod.Mains...) {
		if c.Name == container {
			program.Image, program.Command = c.Image, c.Command
		}
	}
	return program
}

// release ends programs that could not be killed when their fault is cleared.
func (r *reconciliation) release() error {
	if r.node.Faults.Has(rules.KernelHang) {
		return nil
	}
	for _, pod := range r.pods {
		if pod.Exit == neverEnds {
			if err := r.annotate(pod, rules.ExitAnnotation, "137"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *reconciliation) reject(pod *Pod, refusal error) error {
	const reason = "UnexpectedAdmissionError"
	message := rules.Rejection(refusal)
	if err := r.patch(pod, nil, object{"phase": corev1.PodFailed, "reason": reason, "message": message}, "status"); err != nil {
		return err
	}
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: pod.Name + ".", Namespace: pod.Namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID},
		Type:           corev1.EventTypeWarning, Reason: reason, Message: strings.TrimPrefix(message, "Pod was rejected: "),
		Source: corev1.EventSource{Component: "kubelet", Host: r.node.Name}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	_, err := r.core.CoreV1().Events(pod.Namespace).Create(r.ctx, event, metav1.CreateOptions{})
	return err
}
