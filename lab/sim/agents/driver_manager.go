// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"errors"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lab.invalid/sim/rules"
)

// driverConfigDigest is the variable that contains the digest of a driver pod's configuration.
const driverConfigDigest = "DRIVER_CONFIG_DIGEST"

// evictionPoll is how often an eviction is repeated that a PodDisruptionBudget does not allow yet.
const evictionPoll = 5 * time.Second

// unloadOutcome is the result of the init container k8s-driver-manager.
type unloadOutcome int

const (
	notUnloaded unloadOutcome = iota // it runs, waits, or has failed
	unloaded
	kept // the loaded driver has the same configuration
)

// unload is the init container of a driver pod (NVIDIA/k8s-driver-manager: cmd/driver-manager/main.go, uninstallDriver). A node
// without a loaded driver has nothing to unload. ENABLE_AUTO_DRAIN, which the operator never sets, is not simulated.
func (r *reconciliation) unload(pod *Pod) (unloadOutcome, error) {
	if r.driver() == "" {
		return unloaded, nil
	}
	failed := r.unloadCrash(pod)
	if failed.waiting(r) {
		return notUnloaded, nil
	}
	if stopped, err := r.stopOperands(pod); err != nil || !stopped {
		return notUnloaded, err
	}
	if r.keepsDriver(pod) {
		return kept, nil
	}
	evicts := r.evictsGPUPods(pod)
	if evicts {
		evicted, failure, err := r.evictGPUPods(pod)
		if failure != nil {
			return notUnloaded, r.failUnload(pod, failed, failure)
		}
		if err != nil || !evicted {
			return notUnloaded, err
		}
	}
	use, err := r.usage()
	if err != nil {
		return notUnloaded, err
	}
	if use.Any() {
		return notUnloaded, r.failUnload(pod, failed, errors.New(rules.CannotUnload))
	}
	if evicts {
		err = r.cordon(false)
	}
	failed.failing = false
	return unloaded, err
}

// stopOperands pauses the operands and returns whether their pods are gone; the deletion of a pod triggers the next
// reconciliation.
func (r *reconciliation) stopOperands(pod *Pod) (bool, error) {
	clients := rules.Does(pod.initImage(driverManager), rules.PausesClientsForDriver)
	if labels := rules.PauseLabelsForDriver(r.node.Deploy, clients); len(labels) > 0 {
		r.again.at(time.Now().Add(r.scaled(rules.MIGPoll)))
		return false, r.patchMetadata(labels, nil)
	}
	for _, app := range rules.DriverClients {
		if len(r.appPods(pod.Namespace, app)) > 0 {
			return false, nil
		}
	}
	waits := clients && r.node.Deploy[rules.ClientLabel] != ""
	return !waits || !slices.ContainsFunc(r.pods, func(pod *Pod) bool { return pod.GPUClient }), nil
}

// keepsDriver returns whether the loaded driver has the configuration of this pod.
func (r *reconciliation) keepsDriver(pod *Pod) bool {
	digest := pod.Env[driverConfigDigest]
	loaded := r.memory.driverConfig
	if loaded == "" {
		loaded = r.node.DriverConfig
	}
	forced, _ := strconv.ParseBool(pod.Env["FORCE_REINSTALL"])
	return digest != "" && digest == loaded && !forced && rules.Does(pod.initImage(driverManager), rules.KeepsEqualDriver)
}

// evictsGPUPods returns whether the driver manager evicts the pods that requested GPUs: not where the operator upgrades
// drivers, since it does that itself.
func (r *reconciliation) evictsGPUPods(pod *Pod) bool {
	enabled, err := strconv.ParseBool(pod.Env["ENABLE_GPU_POD_EVICTION"])
	return (enabled || err != nil) && !r.node.AutoUpgrade
}

// evictGPUPods cordons the node and evicts the pods that requested GPUs; it returns whether they are gone. Like kubectl drain,
// it evicts none if one has no controller, or an emptyDir volume, and that is not allowed.
func (r *reconciliation) evictGPUPods(pod *Pod) (evicted bool, failure, err error) {
	if err := r.cordon(true); err != nil {
		return false, nil, err
	}
	force, _ := strconv.ParseBool(pod.Env["DRAIN_USE_FORCE"])
	deleteEmptyDir, _ := strconv.ParseBool(pod.Env["DRAIN_DELETE_EMPTYDIR_DATA"])
	var users []*Pod
	for _, user := range r.pods {
		if !user.GPURequest {
			continue
		}
		users = append(users, user)
		if !user.Ended() && (user.Owner.Kind == "" && !force || user.EmptyDir && !deleteEmptyDir || user.Owner.Kind == "DaemonSet") {
			return false, errors.New(rules.CannotEvict), nil
		}
	}
	for _, user := range users {
		if user.DeletionTimestamp == nil {
			if err := r.evict(user); err != nil {
				return false, nil, err
			}
		}
	}
	return len(users) == 0, nil, nil
}

// evict sends an eviction, which is repeated later if a PodDisruptionBudget does not allow it.
func (r *reconciliation) evict(pod *Pod) error {
	uid := pod.UID
	err := r.core.PolicyV1().Evictions(pod.Namespace).Evict(r.ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	})
	if apierrors.IsTooManyRequests(err) {
		r.again.at(time.Now().Add(r.scaled(evictionPoll)))
		return nil
	}
	return ignoreGone(err)
}

// cordon makes the node unschedulable, or schedulable again.
func (r *reconciliation) cordon(on bool) error {
	if r.node.Cordoned == on {
		return nil
	}
	data := []byte(`{"metadata": {"uid": "` + string(r.node.UID) + `"}, "spec": {"unschedulable": ` + strconv.FormatBool(on) + `}}`)
	_, err := r.core.CoreV1().Nodes().Patch(r.ctx, r.node.Name, types.MergePatchType, data, metav1.PatchOptions{})
	return ignoreGone(err)
}

// failUnload ends the init container with an error: the operands are scheduled again, and the loaded driver continues.
func (r *reconciliation) failUnload(pod *Pod, c *crash, failure error) error {
	if r.evictsGPUPods(pod) {
		if err := r.cordon(false); err != nil {
			return err
		}
	}
	if err := r.restore(); err != nil {
		return err
	}
	c.fail(failure, r)
	return r.initFails(pod, driverManager, c)
}

// unloadFails returns whether the driver manager of a driver pod on this node has failed; the operands wait for its driver.
func (r *reconciliation) unloadFails() bool {
	return slices.ContainsFunc(r.pods, func(pod *Pod) bool {
		c := r.memory.unloads[string(pod.UID)]
		return c != nil && c.failing && pod.State == "" && pod.DeletionTimestamp == nil
	})
}

// unloadCrash returns the crash state of a pod's driver manager; after a restart of the simulator, that of the pod's status.
func (r *reconciliation) unloadCrash(pod *Pod) *crash {
	c := r.memory.unloads[string(pod.UID)]
	if c == nil {
		c = &crash{}
		for _, init := range pod.Inits {
			if init.Name == driverManager {
				c.restarts, c.streak = int(init.Status.RestartCount), int(init.Status.RestartCount)
				c.failing = init.Status.State.Waiting != nil && init.Status.State.Waiting.Reason == "CrashLoopBackOff"
			}
		}
		r.memory.unloads[string(pod.UID)] = c
	}
	return c
}

// usage returns the devices that running pods hold or have opened.
func (r *reconciliation) usage() (rules.Usage, error) {
	var ids []string
	for _, pod := range r.pods {
		if pod.Phase != corev1.PodRunning {
			continue
		}
		for _, resources := range r.allocation(pod) {
			for _, of := range resources {
				ids = append(ids, of...)
			}
		}
	}
	use := rules.UsageOf(r.node.Name, r.node.Hardware, r.layout(), ids)
	return use, r.addOpenedDevices(&use)
}
