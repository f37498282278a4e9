// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"cmp"
	"errors"
	"time"

	"lab.invalid/sim/rules"
)

// reconcileDriver performs the actions of a driver pod: k8s-driver-manager stops the users of the loaded driver and unloads
// it (driver_manager.go); then the pod loads its own driver, and the operands run again. On a real node the operands start
// slightly earlier and wait in their init containers.
func (r *reconciliation) reconcileDriver(pod *Pod) error {
	c := r.driverCrashes(pod)
	if failure := r.driverFailure(); failure != "" {
		return r.failDriver(pod, c, failure)
	}
	if c.waiting(r) {
		return nil
	}
	if pod.State != "" {
		if !pod.Running() {
			return nil
		}
		if c.restarts > 0 && !pod.Ready {
			c.failing = false
			return r.statuses(pod, map[string]*crash{driver: c})
		}
		if err := r.reconcileLicense(pod); err != nil {
			return err
		}
		return r.restore()
	}
	loading, begun := r.memory.loading[string(pod.UID)]
	if !begun {
		if mounted, err := r.mountLicense(pod); err != nil || !mounted {
			return err
		}
		outcome, err := r.unload(pod)
		if err != nil || outcome == notUnloaded {
			return err
		}
		loading = time.Now()
		if outcome == unloaded {
			loading = loading.Add(r.scaledForNode(rules.DriverLoad))
		}
		r.memory.loading[string(pod.UID)] = loading
	}
	if time.Now().Before(loading) {
		r.again.at(loading)
		return nil
	}
	if r.node.Hardware == nil {
		return nil // without a GPU the driver cannot be loaded, and the container does not become ready
	}
	version := cmp.Or(rules.DriverVersion(pod.image(driver)), r.node.Hardware.Driver)
	digest := pod.Env[driverConfigDigest]
	if err := r.patchMetadata(nil, object{rules.DriverAnnotation: version, rules.DriverConfigAnnotation: digest}); err != nil {
		return err
	}
	r.memory.driver, r.memory.driverConfig = version, digest
	if err := r.startContainer(pod); err != nil {
		return err
	}
	return r.annotate(pod, stateAnnotation, version)
}

// driverFailure returns why no driver can be loaded on this node, or an empty string.
func (r *reconciliation) driverFailure() string {
	return rules.DriverFailure(r.node.Hardware, r.node.Faults)
}

// driverCrashes returns the crash state of a driver pod's container.
func (r *reconciliation) driverCrashes(pod *Pod) *crash {
	c := r.memory.crashes[string(pod.UID)]
	if c == nil {
		c = &crash{}
		for _, main := range pod.Mains {
			if main.Name == driver {
				c.restarts, c.streak = int(main.Status.RestartCount), int(main.Status.RestartCount)
				c.failing = main.Status.State.Waiting != nil && main.Status.State.Waiting.Reason == "CrashLoopBackOff"
			}
		}
		r.memory.crashes[string(pod.UID)] = c
	}
	return c
}

// failDriver makes the container of a driver pod exit with an error, which also unloads its driver.
func (r *reconciliation) failDriver(pod *Pod, c *crash, failure string) error {
	if c.waiting(r) {
		return nil
	}
	if pod.State != "" {
		if err := r.annotate(pod, stateAnnotation, nil); err != nil {
			return err
		}
	}
	if r.driver() != "" {
		if err := r.patchMetadata(nil, object{rules.DriverAnnotation: nil, rules.DriverConfigAnnotation: nil}); err != nil {
			return err
		}
		r.memory.driver, r.memory.driverConfig = "", ""
	}
	delete(r.memory.loading, string(pod.UID))
	if err := r.stopContainer(pod); err != nil {
		return err
	}
	c.fail(errors.New(failure), r)
	r.logs.replace(pod, driver, []string{"Loading NVIDIA driver kernel modules...", failure}, c.ended)
	return r.mainFails(pod, driver, c)
}

func (r *reconciliation) restore() error {
	if labels := rules.ResumeLabelsAfterDriver(r.node.Deploy); len(labels) > 0 {
		return r.patchMetadata(labels, nil)
	}
	return nil
}

// driver returns the version that a driver pod has loaded, or an empty string.
func (r *reconciliation) driver() string {
	if r.memory.driver != "" {
		return r.memory.driver
	}
	return r.node.Driver
}

// driversLoaded returns whether all driver pods of the node have loaded their driver: the operands wait for this in their
// init containers.
func (r *reconciliation) driversLoaded() bool {
	if r.driverFailure() != "" {
		return false
	}
	for _, pod := range r.pods {
		if pod.Operand == driver && pod.State == "" && pod.DeletionTimestamp == nil {
			return false
		}
	}
	return true
}

// hardware returns the node's hardware as reported by the loaded driver.
func (r *reconciliation) hardware() *rules.Hardware {
	return r.node.Hardware.WithDriver(r.driver())
}
