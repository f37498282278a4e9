// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"lab.invalid/sim/rules"
)

// check decides whether a change is necessary, and if so pauses the operands.
func (r *reconciliation) check(pod *Pod, m *migProcess) error {
	m.Before = maps.Clone(r.node.Deploy)
	entries, err := rules.MIGConfig(r.migConfig(pod), m.Read)
	if err != nil {
		return r.failed(pod, m, fmt.Errorf("failed to validate MIG configuration: %w", err))
	}
	p, err := r.parted(pod)
	if err != nil {
		return err
	}
	mode := p.AssertMode(entries)
	if mode && p.AssertConfig(entries) {
		return r.finish(pod, m, rules.MIGStateSuccess, !m.Completed)
	}
	if !mode && r.node.MIGState == rules.MIGStateRebooting {
		return r.failed(pod, m, errors.New("failed to check if a MIG mode change is required: MIG mode change did not take effect after rebooting"))
	}
	labels := rules.PauseLabels(m.Before, m.pausesClients)
	labels[rules.MIGStateLabel] = rules.MIGStatePending
	if err := r.patchMetadata(labels, nil); err != nil {
		return err
	}
	m.stage, m.since = 0, time.Now()
	r.proceed(m, draining, 0)
	return r.remember(pod, m)
}

// drain waits until the pods of the operands are deleted, one after another. If one remains, the MIG manager gives up
// without updating the node's labels: the state remains pending.
func (r *reconciliation) drain(pod *Pod, m *migProcess) (bool, error) {
	for m.stage < len(rules.MIGClients) {
		app := rules.MIGClients[m.stage]
		if poll := m.since.Add(r.scaled(rules.MIGPoll)); time.Now().Before(poll) {
			m.until = poll
			return true, nil
		}
		if len(r.appPods(pod.Namespace, app)) == 0 && !r.node.Faults.Has(rules.MIGPending) {
			m.stage, m.since = m.stage+1, time.Now()
			continue
		}
		if deadline := m.since.Add(r.podDeletionTimeout()); time.Now().Before(deadline) {
			r.again.at(deadline)
			return false, nil
		}
		m.log("error", fmt.Sprintf("Error: failed to wait for pods to be deleted: the pod of %s did not shutdown: context deadline exceeded", app))
		return true, r.endChange(pod, m)
	}
	if m.pausesClients && slices.ContainsFunc(r.pods, func(pod *Pod) bool { return pod.GPUClient }) {
		if deadline := m.since.Add(r.podDeletionTimeout()); time.Now().Before(deadline) {
			r.again.at(deadline)
			return false, nil
		}
		m.log("error", "Error: failed to wait for pods to be deleted: third-party gpu client pods did not shutdown: context deadline exceeded")
		return true, r.endChange(pod, m)
	}
	for _, app := range rules.MIGValidators {
		if err := r.deleteApp(pod.Namespace, app); err != nil {
			return false, err
		}
	}
	r.proceed(m, switching, rules.MIGSwitch)
	return true, nil
}

// podDeletionTimeout is the time limit for the deletion of an operand's pod. The real control plane deletes it, so the limit
// is not scaled, except for the fault mig-pending.
func (r *reconciliation) podDeletionTimeout() time.Duration {
	if r.node.Faults.Has(rules.MIGPending) {
		return r.scaled(rules.MIGWait)
	}
	return r.options.MIGWait
}

// switchMode changes the MIG mode. If that fails, the node is rebooted if the MIG manager is configured to do so; otherwise
// the next step fails.
func (r *reconciliation) switchMode(pod *Pod, m *migProcess) (bool, error) {
	failure, err := r.repartition(pod, m, (*rules.MIGParted).ApplyMode)
	if err != nil {
		return false, err
	}
	if failure != nil {
		m.log("error", failure.Error())
	}
	if failure != nil && r.reboots(pod) {
		m.log("info", "Rebooting the node...")
		r.logs.replace(pod, migManager, m.lines, time.Now())
		return false, r.reboot(map[string]string{rules.MIGStateLabel: rules.MIGStateRebooting})
	}
	r.proceed(m, creating, rules.MIGCreate)
	return true, nil
}

// reboots returns whether the MIG manager can reboot its node: by its environment, or by the fault mig-reboot.
func (r *reconciliation) reboots(pod *Pod) bool {
	enabled, err := strconv.ParseBool(pod.Env["WITH_REBOOT"])
	return enabled || err != nil && r.node.Faults.Has(rules.MIGReboot)
}

// createDevices creates the MIG devices and lets the operands run again, unless the fault mig-paused is set.
func (r *reconciliation) createDevices(pod *Pod, m *migProcess) error {
	failure, err := r.repartition(pod, m, (*rules.MIGParted).Apply)
	if err != nil {
		return err
	}
	if failure != nil {
		return r.failed(pod, m, fmt.Errorf("failed to apply MIG configuration: %w", failure))
	}
	if err := r.deleteApp(pod.Namespace, validator); err != nil {
		return err
	}
	m.Completed = true
	return r.finish(pod, m, rules.MIGStateSuccess, !r.node.Faults.Has(rules.MIGPaused))
}

// repartition runs mig-parted, which reads the mounted file each time; the first result is the error of mig-parted.
func (r *reconciliation) repartition(pod *Pod, m *migProcess, apply func(*rules.MIGParted, rules.MIGEntries) error) (failure, err error) {
	entries, failure := rules.MIGConfig(r.migConfig(pod), m.Read)
	if failure != nil {
		return failure, nil
	}
	p, err := r.parted(pod)
	if err != nil {
		return nil, err
	}
	failure = apply(&p, entries)
	return failure, r.saveLayout(p.Layout, nil)
}

// heldByHost returns whether services of a host with its own driver hold the GPUs during a change: the MIG manager stops those that
// the ConfigMap of its gpu-clients lists.
func (r *reconciliation) heldByHost(pod *Pod) (bool, error) {
	if r.node.OS.Services == "" || r.driver() != "" {
		return false, nil
	}
	namespace, name, _ := strings.Cut(pod.GPUClients, "/")
	var text string
	if name != "" {
		clients, err := r.core.CoreV1().ConfigMaps(namespace).Get(r.ctx, name, metav1.GetOptions{})
		if ignoreGone(err) != nil {
			return false, err
		}
		text = clients.Data[rules.GPUClientsKey]
	}
	clients, err := rules.GPUClients(text)
	if err != nil {
		klog.ErrorS(err, "ignoring invalid gpu-clients", "configMap", pod.GPUClients)
	}
	return len(r.node.OS.RemainingServices(clients)) > 0, nil
}

// parted returns mig-parted for this node. With the fault mig-failed, an unknown process holds all GPUs.
func (r *reconciliation) parted(pod *Pod) (rules.MIGParted, error) {
	use, err := r.usage()
	if err != nil {
		return rules.MIGParted{}, err
	}
	held, err := r.heldByHost(pod)
	if err != nil {
		return rules.MIGParted{}, err
	}
	use.All = use.All || r.node.Faults.Has(rules.MIGFailed) || held
	layout := r.layout()
	return rules.MIGParted{Hardware: r.node.Hardware, Layout: layout, Use: use, NoReset: r.node.Faults.Has(rules.MIGReboot),
		Partial: r.node.Faults.Has(rules.MIGPartial)}, nil
}

// appPods returns the pods of an app on this node, including those being deleted.
func (r *reconciliation) appPods(namespace, app string) []*Pod {
	var found []*Pod
	for _, pod := range r.pods {
		if pod.Namespace == namespace && pod.App == app {
			found = append(found, pod)
		}
	}
	return found
}

func (r *reconciliation) deleteApp(namespace, app string) error {
	for _, pod := range r.appPods(namespace, app) {
		err := r.core.CoreV1().Pods(namespace).Delete(r.ctx, pod.Name, *metav1.NewPreconditionDeleteOptions(string(pod.UID)))
		if err := ignoreGone(err); err != nil {
			return err
		}
	}
	return nil
}
