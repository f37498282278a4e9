// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"cmp"
	"errors"
	"time"

	"lab.invalid/sim/rules"
)

// reconcileDriver is a driver pod: k8s-driver-manager stops what uses the driver that is loaded, and unloads it; then the pod's own
// one is loaded, and the operands run again. In life they run a little earlier, and wait in their init containers.
func (v *reconciliation) reconcileDriver(pod *Pod) error {
	c := v.driverCrashes(pod)
	if failure := v.driverFailure(); failure != "" {
		return v.failDriver(pod, c, failure)
	}
	if c.waiting(v) {
		return nil
	}
	if pod.State != "" {
		if !pod.Running() {
			return nil
		}
		if c.restarts > 0 && !pod.Ready {
			c.failing = false
			return v.statuses(pod, map[string]*crash{driver: c})
		}
		return v.restore()
	}
	loading, begun := v.memory.loading[string(pod.UID)]
	if !begun {
		if gone, err := v.unload(pod); err != nil || !gone {
			return err
		}
		loading = time.Now().Add(v.scaledForNode(rules.DriverLoad))
		v.memory.loading[string(pod.UID)] = loading
	}
	if time.Now().Before(loading) {
		v.again.at(loading)
		return nil
	}
	if v.node.Hardware == nil {
		return nil // without a GPU there is nothing to load it for, and the container does not get ready
	}
	version := cmp.Or(rules.DriverVersion(pod.image(driver)), v.node.Hardware.Driver)
	if err := v.patchMetadata(nil, object{rules.DriverAnnotation: version}); err != nil {
		return err
	}
	v.memory.driver = version
	return v.annotate(pod, stateAnnotation, version)
}

// driverFailure is why no driver can be loaded on this node; empty where one can.
func (v *reconciliation) driverFailure() string {
	return rules.DriverFailure(v.node.Hardware, v.node.Faults)
}

// driverCrashes is how often the container of a driver pod has ended with an error.
func (v *reconciliation) driverCrashes(pod *Pod) *crash {
	c := v.memory.crashes[string(pod.UID)]
	if c == nil {
		c = &crash{}
		for _, main := range pod.Mains {
			if main.Name == driver {
				c.restarts, c.streak = int(main.Status.RestartCount), int(main.Status.RestartCount)
				c.failing = main.Status.State.Waiting != nil && main.Status.State.Waiting.Reason == "CrashLoopBackOff"
			}
		}
		v.memory.crashes[string(pod.UID)] = c
	}
	return c
}

// failDriver lets the container of a driver pod end with an error; the driver that was loaded goes with it.
func (v *reconciliation) failDriver(pod *Pod, c *crash, failure string) error {
	if c.waiting(v) {
		return nil
	}
	if pod.State != "" {
		if err := v.annotate(pod, stateAnnotation, nil); err != nil {
			return err
		}
	}
	if v.driver() != "" {
		if err := v.patchMetadata(nil, object{rules.DriverAnnotation: nil}); err != nil {
			return err
		}
		v.memory.driver = ""
	}
	delete(v.memory.loading, string(pod.UID))
	c.fail(errors.New(failure), v)
	v.logs.replace(pod, driver, []string{"Loading NVIDIA driver kernel modules...", failure}, c.ended)
	return v.mainFails(pod, driver, c)
}

// unload tells whether nothing is loaded any more; a node that has not had a driver pod before has nothing to unload.
func (v *reconciliation) unload(pod *Pod) (bool, error) {
	if v.driver() == "" {
		return true, nil
	}
	if labels := rules.PauseLabelsForDriver(v.node.Deploy); len(labels) > 0 {
		if err := v.patchMetadata(labels, nil); err != nil {
			return false, err
		}
	}
	for _, app := range rules.DriverClients {
		if len(v.appPods(pod.Namespace, app)) > 0 {
			return false, nil // their end will be seen
		}
	}
	return true, nil
}

func (v *reconciliation) restore() error {
	if labels := rules.ResumeLabelsAfterDriver(v.node.Deploy); len(labels) > 0 {
		return v.patchMetadata(labels, nil)
	}
	return nil
}

// driver is the version that a driver pod has loaded; empty where none ever did.
func (v *reconciliation) driver() string {
	if v.memory.driver != "" {
		return v.memory.driver
	}
	return v.node.Driver
}

// driversLoaded tells whether no driver pod of the node is still loading: until then the operands wait in their init containers.
func (v *reconciliation) driversLoaded() bool {
	if v.driverFailure() != "" {
		return false
	}
	for _, pod := range v.pods {
		if pod.Operand == driver && pod.State == "" && pod.DeletionTimestamp == nil {
			return false
		}
	}
	return true
}

// hardware is what the loaded driver shows of the node.
func (v *reconciliation) hardware() *rules.Hardware {
	return v.node.Hardware.WithDriver(v.driver())
}
