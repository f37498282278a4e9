// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lab.invalid/sim/rules"
)

// check decides whether there is anything to do, and if so stops the operands.
func (v *reconciliation) check(pod *Pod, m *migProcess) error {
	m.Before = maps.Clone(v.node.Deploy)
	mounted, _ := v.mounted(pod)
	entries, err := rules.MIGConfig(mounted, m.Read)
	if err != nil {
		return v.failed(pod, m, fmt.Errorf("failed to validate MIG configuration: %w", err))
	}
	p, err := v.parted()
	if err != nil {
		return err
	}
	mode := p.AssertMode(entries)
	if mode && p.AssertConfig(entries) {
		return v.finish(pod, m, rules.MIGStateSuccess, !m.Completed)
	}
	if !mode && v.node.MIGState == rules.MIGStateRebooting {
		return v.failed(pod, m, errors.New("failed to check if a MIG mode change is required: MIG mode change did not take effect after rebooting"))
	}
	labels := rules.PauseLabels(m.Before)
	labels[rules.MIGStateLabel] = rules.MIGStatePending
	if err := v.patchMetadata(labels, nil); err != nil {
		return err
	}
	m.stage, m.since = 0, time.Now()
	v.proceed(m, draining, 0)
	return v.remember(pod, m)
}

// drain waits until the operands are gone, one after the other. When one of them stays, the MIG manager gives up
// without a word in the node's labels: the state is pending for ever.
func (v *reconciliation) drain(pod *Pod, m *migProcess) (bool, error) {
	for m.stage < len(rules.MIGClients) {
		app := rules.MIGClients[m.stage]
		if poll := m.since.Add(v.scaled(rules.MIGPoll)); time.Now().Before(poll) {
			m.until = poll
			return true, nil
		}
		if len(v.appPods(pod.Namespace, app)) == 0 && !v.node.Faults.Has(rules.MIGPending) {
			m.stage, m.since = m.stage+1, time.Now()
			continue
		}
		if deadline := m.since.Add(v.podDeletionTimeout()); time.Now().Before(deadline) {
			v.again.at(deadline)
			return false, nil
		}
		m.log("error", fmt.Sprintf("Error: failed to wait for pods to be deleted: the pod of %s did not shutdown: context deadline exceeded", app))
		return true, v.endChange(pod, m)
	}
	for _, app := range rules.MIGValidators {
		if err := v.deleteApp(pod.Namespace, app); err != nil {
			return false, err
		}
	}
	v.proceed(m, switching, rules.MIGSwitch)
	return true, nil
}

// podDeletionTimeout is how long an operand's pod may take to vanish. What removes it is a real control plane, which no scale makes
// faster; only the fault is given up early.
func (v *reconciliation) podDeletionTimeout() time.Duration {
	if v.node.Faults.Has(rules.MIGPending) {
		return v.scaled(rules.MIGWait)
	}
	return v.options.MIGWait
}

// switchMode changes the MIG mode. When that fails, the node is rebooted if the MIG manager was told so; otherwise the
// next step will fail.
func (v *reconciliation) switchMode(pod *Pod, m *migProcess) (bool, error) {
	failure, err := v.repartition(pod, m, (*rules.MIGParted).ApplyMode)
	if err != nil {
		return false, err
	}
	if failure != nil {
		m.log("error", failure.Error())
	}
	if failure != nil && v.reboots(pod) {
		m.log("info", "Rebooting the node...")
		v.logs.replace(pod, migManager, m.lines, time.Now())
		return false, v.reboot(map[string]string{rules.MIGStateLabel: rules.MIGStateRebooting})
	}
	v.proceed(m, creating, rules.MIGCreate)
	return true, nil
}

// reboots tells whether the MIG manager may reboot its node: by its environment, or because the fault wants to show it.
func (v *reconciliation) reboots(pod *Pod) bool {
	told, err := strconv.ParseBool(pod.Env["WITH_REBOOT"])
	return told || err != nil && v.node.Faults.Has(rules.MIGReboot)
}

// createDevices makes the MIG devices, and lets the operands run again, unless the fault keeps them paused.
func (v *reconciliation) createDevices(pod *Pod, m *migProcess) error {
	failure, err := v.repartition(pod, m, (*rules.MIGParted).Apply)
	if err != nil {
		return err
	}
	if failure != nil {
		return v.failed(pod, m, fmt.Errorf("failed to apply MIG configuration: %w", failure))
	}
	if err := v.deleteApp(pod.Namespace, validator); err != nil {
		return err
	}
	m.Completed = true
	return v.finish(pod, m, rules.MIGStateSuccess, !v.node.Faults.Has(rules.MIGPaused))
}

// repartition runs mig-parted, which reads the mounted file each time; what it could not do comes as the first error.
func (v *reconciliation) repartition(pod *Pod, m *migProcess, apply func(*rules.MIGParted, rules.MIGEntries) error) (failure, err error) {
	mounted, _ := v.mounted(pod)
	entries, failure := rules.MIGConfig(mounted, m.Read)
	if failure != nil {
		return failure, nil
	}
	p, err := v.parted()
	if err != nil {
		return nil, err
	}
	failure = apply(&p, entries)
	return failure, v.saveLayout(p.Layout, nil)
}

// parted is mig-parted on this node. An unknown somebody holds all GPUs when the fault says so.
func (v *reconciliation) parted() (rules.MIGParted, error) {
	var ids []string
	for _, pod := range v.pods {
		if pod.Phase != corev1.PodRunning {
			continue
		}
		for _, resources := range v.allocation(pod) {
			for _, of := range resources {
				ids = append(ids, of...)
			}
		}
	}
	layout := v.layout()
	use := rules.UsageOf(v.node.Name, v.node.Hardware, layout, ids)
	use.All = v.node.Faults.Has(rules.MIGFailed)
	if err := v.addOpenedDevices(&use); err != nil {
		return rules.MIGParted{}, err
	}
	return rules.MIGParted{Hardware: v.node.Hardware, Layout: layout, Use: use, NoReset: v.node.Faults.Has(rules.MIGReboot),
		Partial: v.node.Faults.Has(rules.MIGPartial)}, nil
}

// appPods are the pods of an app on this node; one that is being deleted is still there.
func (v *reconciliation) appPods(namespace, app string) []*Pod {
	var found []*Pod
	for _, pod := range v.pods {
		if pod.Namespace == namespace && pod.App == app {
			found = append(found, pod)
		}
	}
	return found
}

func (v *reconciliation) deleteApp(namespace, app string) error {
	for _, pod := range v.appPods(namespace, app) {
		err := v.core.CoreV1().Pods(namespace).Delete(v.ctx, pod.Name, *metav1.NewPreconditionDeleteOptions(string(pod.UID)))
		if err := ignoreGone(err); err != nil {
			return err
		}
	}
	return nil
}
