// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"encoding/json"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lab.invalid/sim/rules"
)

// layout returns the MIG layout of the node's GPUs.
func (r *reconciliation) layout() rules.Layout {
	if r.memory.layout == nil {
		layout := r.node.Layout.Clone()
		r.memory.layout = &layout
	}
	return *r.memory.layout
}

// saveLayout stores the MIG layout if it changed, and additional annotations.
func (r *reconciliation) saveLayout(layout rules.Layout, more object) error {
	if layout.Equal(r.layout()) && more == nil {
		return nil
	}
	if layout.Count() != r.layout().Count() || len(layout.GPUs) != len(r.layout().GPUs) {
		layout.Changed = time.Now().Unix()
	}
	text, err := json.Marshal(layout)
	if err != nil {
		return err
	}
	annotations := object{rules.MIGAnnotation: string(text)}
	for key, value := range more {
		annotations[key] = value
	}
	if err := r.patchMetadata(nil, annotations); err != nil {
		return err
	}
	r.memory.layout = &layout
	return nil
}

// patchMetadata changes labels and annotations of the node with this UID.
func (r *reconciliation) patchMetadata(labels map[string]string, annotations object) error {
	metadata := object{"uid": string(r.node.UID)}
	if labels != nil {
		metadata["labels"] = labels
	}
	if annotations != nil {
		metadata["annotations"] = annotations
	}
	data, err := json.Marshal(object{"metadata": metadata})
	if err != nil {
		return err
	}
	_, err = r.core.CoreV1().Nodes().Patch(r.ctx, r.node.Name, types.MergePatchType, data, metav1.PatchOptions{})
	return ignoreGone(err)
}

// ignoreGone ignores that an object was deleted or replaced by another one with the same name.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// reboot starts a reboot and sets the labels; kwok's stages make the node NotReady until the reboot is complete.
func (r *reconciliation) reboot(labels map[string]string) error {
	until := time.Now().Add(r.scaledForNode(rules.Reboot)).Truncate(time.Millisecond)
	if err := r.patchMetadata(labels, object{rebootAnnotation: strconv.FormatInt(until.UnixMilli(), 10)}); err != nil {
		return err
	}
	r.memory.rebooting = until
	r.again.at(until)
	return nil
}

// down returns whether the node is rebooting, and completes the reboot when it is due.
func (r *reconciliation) down() (bool, error) {
	if request := r.node.RebootRequest; request != "" && request != r.memory.rebootRequest {
		if err := r.reboot(nil); err != nil {
			return true, err
		}
		r.memory.rebootRequest = request
		return true, nil
	}
	until := r.memory.rebooting
	if until.IsZero() {
		until = r.node.Rebooting
	}
	if until.IsZero() || until.Equal(r.memory.rebooted) {
		return false, nil
	}
	if time.Now().Before(until) {
		r.again.at(until)
		return true, nil
	}
	if err := r.boot(until); err != nil {
		return true, err
	}
	r.memory.rebooting, r.memory.rebooted = time.Time{}, until
	return false, nil
}

// boot completes a reboot: every agent restarts, pending MIG modes take effect, and the node gets a new boot ID before it
// can become Ready.
func (r *reconciliation) boot(at time.Time) error {
	for _, pod := range r.pods {
		if err := r.restartAgent(pod); err != nil {
			return err
		}
	}
	r.memory.endpoints = nil // like the kubelet, which counts no device before a plugin registers it
	id := rules.BootID(string(r.node.UID), at.UnixMilli())
	if err := r.patchNode(object{"nodeInfo": object{"bootID": id}}); err != nil {
		return err
	}
	return r.saveLayout(r.layout().AfterReboot(), object{rebootAnnotation: nil})
}

// restartAgent resets the state of an agent, except for the restart counts in the pod's status.
func (r *reconciliation) restartAgent(pod *Pod) error {
	switch pod.Operand {
	case driver:
		if pod.State == "" {
			return nil
		}
		r.forgetContainer(pod)
		if _, err := r.mountLicense(pod); err != nil {
			return err
		}
		return r.startContainer(pod)
	case migManager:
		r.memory.managers[string(pod.UID)] = &migProcess{}
	case devicePlugin, gfd, mpsDaemon:
		a := &agent{}
		a.resume(pod)
		a.main.failing, a.manager.failing = false, false
		r.memory.agents[string(pod.UID)] = a
	default:
		return nil
	}
	r.remountVolumes(pod)
	return r.annotate(pod, stateAnnotation, nil)
}
