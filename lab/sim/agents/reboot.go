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

// layout is what MIG has made of the node's GPUs.
func (v *reconciliation) layout() rules.Layout {
	if v.memory.layout == nil {
		layout := v.node.Layout.Clone()
		v.memory.layout = &layout
	}
	return *v.memory.layout
}

// saveLayout keeps a new state of the GPUs, if it is one.
func (v *reconciliation) saveLayout(layout rules.Layout, more object) error {
	if layout.Equal(v.layout()) && more == nil {
		return nil
	}
	if layout.Count() != v.layout().Count() || len(layout.GPUs) != len(v.layout().GPUs) {
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
	if err := v.patchMetadata(nil, annotations); err != nil {
		return err
	}
	v.memory.layout = &layout
	return nil
}

// patchMetadata changes labels and annotations of this very node.
func (v *reconciliation) patchMetadata(labels map[string]string, annotations object) error {
	metadata := object{"uid": string(v.node.UID)}
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
	_, err = v.core.CoreV1().Nodes().Patch(v.ctx, v.node.Name, types.MergePatchType, data, metav1.PatchOptions{})
	return ignoreGone(err)
}

// ignoreGone forgives that an object is there no more, or is another one of that name.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// reboot takes the node down for a while, with these labels; it is NotReady until it is back, by kwok's stages.
func (v *reconciliation) reboot(labels map[string]string) error {
	until := time.Now().Add(v.scaledForNode(rules.Reboot)).Truncate(time.Millisecond)
	if err := v.patchMetadata(labels, object{rebootAnnotation: strconv.FormatInt(until.UnixMilli(), 10)}); err != nil {
		return err
	}
	v.memory.rebooting = until
	v.again.at(until)
	return nil
}

// down tells whether the node is rebooting, and lets it come back in time.
func (v *reconciliation) down() (bool, error) {
	if asked := v.node.RebootRequest; asked != "" && asked != v.memory.rebootRequest {
		if err := v.reboot(nil); err != nil {
			return true, err
		}
		v.memory.rebootRequest = asked
		return true, nil
	}
	until := v.memory.rebooting
	if until.IsZero() {
		until = v.node.Rebooting
	}
	if until.IsZero() || until.Equal(v.memory.rebooted) {
		return false, nil
	}
	if time.Now().Before(until) {
		v.again.at(until)
		return true, nil
	}
	if err := v.boot(until); err != nil {
		return true, err
	}
	v.memory.rebooting, v.memory.rebooted = time.Time{}, until
	return false, nil
}

// boot brings the node back: every agent starts anew, MIG modes that were pending are in effect, and the boot has an id of
// its own, which is there before the node can be Ready.
func (v *reconciliation) boot(at time.Time) error {
	for _, pod := range v.pods {
		if err := v.restartAgent(pod); err != nil {
			return err
		}
	}
	v.memory.endpoints = nil // as the kubelet, which counts no device before a plugin registers it
	id := rules.BootID(string(v.node.UID), at.UnixMilli())
	if err := v.patchNode(object{"nodeInfo": object{"bootID": id}}); err != nil {
		return err
	}
	return v.saveLayout(v.layout().AfterReboot(), object{rebootAnnotation: nil})
}

// restartAgent makes an agent forget what it had read; what its containers have gone through is in the pod's status.
func (v *reconciliation) restartAgent(pod *Pod) error {
	switch pod.Operand {
	case migManager:
		v.memory.managers[string(pod.UID)] = &migProcess{}
	case devicePlugin, gfd, mpsDaemon:
		a := &agent{}
		a.resume(pod)
		a.main.failing, a.manager.failing = false, false
		v.memory.agents[string(pod.UID)] = a
	default:
		return nil
	}
	v.remountVolumes(pod)
	return v.annotate(pod, stateAnnotation, nil)
}
