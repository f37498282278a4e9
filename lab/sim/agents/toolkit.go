// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"errors"
	"path"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lab.invalid/sim/rules"
)

// sandboxReady is the kubelet's condition for a pod that has a sandbox.
const sandboxReady = "PodReadyToStartContainers"

// toolkitPaths returns the paths on the node with which a container toolkit works: the operator mounts their folders, and gives
// the toolkit the paths within its container.
func toolkitPaths(p *corev1.Pod, main *corev1.Container) rules.ToolkitPaths {
	folders, variables := map[string]string{}, map[string]string{}
	for _, volume := range p.Spec.Volumes {
		if volume.HostPath != nil {
			folders[volume.Name] = volume.HostPath.Path
		}
	}
	for _, variable := range main.Env {
		variables[variable.Name] = variable.Value
	}
	host := func(volume, variable string) string {
		if folders[volume] == "" || variables[variable] == "" {
			return ""
		}
		return path.Join(folders[volume], path.Base(variables[variable]))
	}
	return rules.ToolkitPaths{Socket: host("containerd-socket", "CONTAINERD_SOCKET"), Config: host("containerd-config", "CONTAINERD_CONFIG"),
		DropIn: host("containerd-drop-in-config", "RUNTIME_DROP_IN_CONFIG")}
}

// reconcileToolkit makes the container of a toolkit's pod exit if it cannot reach the node's containerd.
func (r *reconciliation) reconcileToolkit(pod *Pod) error {
	failure := r.node.Containerd.Failure(pod.Toolkit)
	if failure == "" || !pod.Running() {
		return nil
	}
	c := r.memory.crashes[string(pod.UID)]
	if c == nil {
		c = &crash{}
		for _, main := range pod.Mains {
			c.restarts, c.streak = int(main.Status.RestartCount), int(main.Status.RestartCount)
		}
		r.memory.crashes[string(pod.UID)] = c
	}
	if c.waiting(r) {
		return nil
	}
	c.fail(errors.New(failure), r)
	r.logs.replace(pod, toolkit, []string{"Sending SIGHUP signal to containerd", failure}, c.ended)
	return r.mainFails(pod, toolkit, c)
}

// lacksRuntime returns whether the node's containerd does not know the handler of a pod's runtime class, because the toolkit on
// this node has not configured it.
func (r *reconciliation) lacksRuntime(pod *Pod) bool {
	if pod.RuntimeClass == "" {
		return false
	}
	for _, other := range r.pods {
		if other.Operand == toolkit && other.DeletionTimestamp == nil {
			return !r.node.Containerd.Configured(other.Toolkit)
		}
	}
	return false
}

// keepWithoutSandbox writes the status and the event of a pod for which the kubelet cannot create a sandbox.
func (r *reconciliation) keepWithoutSandbox(pod *Pod) error {
	if pod.WithoutSandbox && pod.Phase != corev1.PodRunning {
		return nil
	}
	if err := r.pending(pod, nil, "ContainerCreating"); err != nil {
		return err
	}
	if err := r.patch(pod, nil, object{"conditions": []object{condition(sandboxReady, false, "")}}, "status"); err != nil {
		return err
	}
	return r.warn(pod, "FailedCreatePodSandBox", rules.NoRuntime)
}

// warn creates a warning of the kubelet about a pod.
func (r *reconciliation) warn(pod *Pod, reason, message string) error {
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: pod.Name + ".", Namespace: pod.Namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID},
		Type:           corev1.EventTypeWarning, Reason: reason, Message: message,
		Source: corev1.EventSource{Component: "kubelet", Host: r.node.Name}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	_, err := r.core.CoreV1().Events(pod.Namespace).Create(r.ctx, event, metav1.CreateOptions{})
	return ignoreGone(err)
}
