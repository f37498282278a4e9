// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

type object = map[string]any

// annotate sets an annotation of the pod with this UID, or removes it if the value is nil.
func (r *reconciliation) annotate(pod *Pod, key string, value any) error {
	return r.patch(pod, object{"annotations": object{key: value}}, nil, "")
}

// patch changes only the pod with this UID, never another one with the same name. A deleted pod is ignored.
func (r *reconciliation) patch(pod *Pod, metadata, status object, subresource string) error {
	if metadata == nil {
		metadata = object{}
	}
	metadata["uid"] = string(pod.UID)
	body := object{"metadata": metadata}
	if status != nil {
		body["status"] = status
	}
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	var subresources []string
	if subresource != "" {
		subresources = []string{subresource}
	}
	_, err = r.core.CoreV1().Pods(pod.Namespace).Patch(r.ctx, pod.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, subresources...)
	return ignoreGone(err)
}

func condition(kind corev1.PodConditionType, true bool, reason string) object {
	status := corev1.ConditionFalse
	if true {
		status = corev1.ConditionTrue
	}
	return object{"type": kind, "status": status, "reason": reason, "lastTransitionTime": metav1.Now()}
}

// statuses writes the container states: those in crashes, and all others as running. It does not write unchanged states.
func (r *reconciliation) statuses(pod *Pod, crashes map[string]*crash) error {
	wanted := make([]corev1.ContainerStatus, 0, len(pod.Mains))
	same, ready := true, true
	for _, c := range pod.Mains {
		status := c.Status
		status.Name, status.Image = c.Name, c.Image
		if crashed := crashes[c.Name]; crashed != nil && crashed.restarts > 0 {
			fill(&status, pod, c.Name, crashed)
		}
		ready = ready && status.Ready
		same = same && status.Ready == c.Status.Ready && status.RestartCount == c.Status.RestartCount
		wanted = append(wanted, status)
	}
	if same && ready == pod.Ready {
		return nil
	}
	reason := ""
	if !ready {
		reason = "ContainersNotReady"
	}
	return r.patch(pod, nil, object{"containerStatuses": wanted,
		"conditions": []object{condition(corev1.PodReady, ready, reason), condition(corev1.ContainersReady, ready, reason)}}, "status")
}

func fill(status *corev1.ContainerStatus, pod *Pod, name string, c *crash) {
	started := !c.failing
	if status.Ready == started && int(status.RestartCount) == c.restarts {
		return
	}
	ended := metav1.NewTime(c.ended)
	status.RestartCount, status.Ready, status.Started = int32(c.restarts), started, &started
	status.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", StartedAt: ended, FinishedAt: ended}}
	if c.failing {
		status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: backOff(pod, name, c)}}
	} else {
		status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now())}}
	}
}

// initFails writes the status of a pod with a failing init container: those before it are completed, those after it waiting.
func (r *reconciliation) initFails(pod *Pod, name string, c *crash) error {
	r.logs.crashed(pod, name, c.line, c.ended)
	var inits []corev1.ContainerStatus
	reached := false
	for _, init := range pod.Inits {
		status := corev1.ContainerStatus{Name: init.Name, Image: init.Image}
		switch {
		case init.Name == name:
			reached = true
			fill(&status, pod, name, c)
			status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: backOff(pod, name, c)}}
		case reached:
			status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
		default:
			now := metav1.Now()
			status.Ready = true
			status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}}
		}
		inits = append(inits, status)
	}
	return r.pending(pod, inits, "PodInitializing")
}

// initWaits writes the status of a pod whose first init container runs and waits.
func (r *reconciliation) initWaits(pod *Pod) error {
	if pod.Phase != corev1.PodRunning && pod.Inits[0].Status.State.Running != nil {
		return nil
	}
	var inits []corev1.ContainerStatus
	for _, init := range pod.Inits {
		status := corev1.ContainerStatus{Name: init.Name, Image: init.Image, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}}
		if len(inits) == 0 {
			status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
		}
		inits = append(inits, status)
	}
	return r.pending(pod, inits, "PodInitializing")
}

// mainFails writes the status of a pod with completed init containers and a crash-looping main container.
func (r *reconciliation) mainFails(pod *Pod, name string, c *crash) error {
	now := metav1.Now()
	var inits, mains []corev1.ContainerStatus
	for _, init := range pod.Inits {
		inits = append(inits, corev1.ContainerStatus{Name: init.Name, Image: init.Image, Ready: true,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}}})
	}
	for _, main := range pod.Mains {
		status := main.Status
		status.Name, status.Image = main.Name, main.Image
		if main.Name == name {
			fill(&status, pod, name, c)
		}
		mains = append(mains, status)
	}
	return r.patch(pod, nil, object{"phase": corev1.PodRunning, "initContainerStatuses": inits, "containerStatuses": mains, "conditions": []object{
		condition(corev1.PodInitialized, true, ""), condition(corev1.PodReady, false, "ContainersNotReady"), condition(corev1.ContainersReady, false, "ContainersNotReady")}}, "status")
}

// pending writes the status of a pod that has not started.
func (r *reconciliation) pending(pod *Pod, inits []corev1.ContainerStatus, reason string) error {
	var mains []corev1.ContainerStatus
	for _, c := range pod.Mains {
		mains = append(mains, corev1.ContainerStatus{Name: c.Name, Image: c.Image,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}})
	}
	status := object{"phase": corev1.PodPending, "containerStatuses": mains, "conditions": []object{
		condition(corev1.PodInitialized, inits == nil, ""), condition(corev1.PodReady, false, "ContainersNotReady"), condition(corev1.ContainersReady, false, "ContainersNotReady")}}
	if inits != nil {
		status["initContainerStatuses"] = inits
	}
	return r.patch(pod, nil, status, "status")
}

// recover restores the Ready condition of pods, which the node controller removed while their node was NotReady.
func (r *reconciliation) recover() error {
	if !r.node.Ready {
		return nil
	}
	for _, pod := range r.pods {
		if !pod.Running() || pod.Ready || !allReady(pod) {
			continue
		}
		if err := r.patch(pod, nil, object{"conditions": []object{condition(corev1.PodReady, true, ""), condition(corev1.ContainersReady, true, "")}}, "status"); err != nil {
			return err
		}
	}
	return nil
}

func allReady(pod *Pod) bool {
	for _, c := range pod.Mains {
		if !c.Status.Ready {
			return false
		}
	}
	return true
}
