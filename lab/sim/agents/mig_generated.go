// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lab.invalid/sim/rules"
)

// startMIGManager performs what the process does once: it publishes the configuration that it generates.
func (r *reconciliation) startMIGManager(pod *Pod, m *migProcess) error {
	if m.started {
		return nil
	}
	m.pausesClients = rules.Does(pod.image(migManager), rules.PausesClientsForMIG)
	// A process that runs already, before the simulator was started, has published it.
	if text, generated := r.generatedMIGConfig(pod); generated && pod.State == "" {
		if err := r.publishMIGConfig(pod, text); err != nil {
			return err
		}
	}
	m.started = true
	return nil
}

// migConfig returns the files from which the MIG manager of a pod reads its configurations.
func (r *reconciliation) migConfig(pod *Pod) map[string]string {
	if text, generated := r.generatedMIGConfig(pod); generated {
		return map[string]string{rules.MIGConfigKey: text}
	}
	mounted, _ := r.mounted(pod)
	return mounted
}

// generatedMIGConfig returns the configuration that the MIG manager of a pod generates, if its release does that and the
// operator gives it no other one.
func (r *reconciliation) generatedMIGConfig(pod *Pod) (string, bool) {
	if pod.Env["CONFIG_FILE"] != "" || !rules.Does(pod.image(migManager), rules.GeneratesMIGConfig) {
		return "", false
	}
	return rules.GeneratedMIGConfig(r.hardware(), r.layout())
}

// publishMIGConfig creates or replaces the ConfigMap <node>-mig-config, which is deleted with the pod.
func (r *reconciliation) publishMIGConfig(pod *Pod, text string) error {
	wanted := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: r.node.Name + "-mig-config", Namespace: pod.Namespace,
			Labels:          map[string]string{"app.kubernetes.io/component": "nvidia-mig-manager", "nvidia.com/node-name": r.node.Name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Data: map[string]string{rules.MIGConfigKey: text},
	}
	client := r.core.CoreV1().ConfigMaps(pod.Namespace)
	_, err := client.Create(r.ctx, wanted, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = client.Update(r.ctx, wanted, metav1.UpdateOptions{})
	}
	return ignoreGone(err)
}
