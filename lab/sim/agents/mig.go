// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"lab.invalid/sim/rules"
)

// migStep is the current step of a MIG manager.
type migStep int

const (
	idle migStep = iota
	checking
	draining
	switching
	creating
)

// migProcess is the process of one nvidia-mig-manager pod (cmd/nvidia-mig-manager and pkg/mig/reconfigure of
// NVIDIA/mig-parted): it applies the label nvidia.com/mig.config, one change at a time.
type migProcess struct {
	started       bool // it has read or generated its configuration
	pausesClients bool
	migState
	step      migStep
	until     time.Time // the earliest end of the step
	since     time.Time // when the wait for the current operand started
	stage     int       // index of the current operand
	lines     []string
	watchHung bool // the watch hangs: a change in progress continues, and is the last one
}

// migState survives a restart of the simulator, in an annotation of the pod. Before has the values of the node's deploy
// labels before they were paused; it is set while a change is in progress.
type migState struct {
	Read      string            `json:"read"`
	Completed bool              `json:"completed,omitempty"`
	Before    map[string]string `json:"before,omitempty"`
}

// reconcileMIG advances the MIG manager as far as possible without waiting.
func (r *reconciliation) reconcileMIG(pod *Pod) (err error) {
	if !pod.Running() || r.node.Hardware == nil {
		return nil
	}
	m := r.migProcess(pod)
	if _, present := r.mounted(pod); !present && m.Read == "" && m.step == idle {
		return nil // like the kubelet: the pod does not start before the volume can be mounted
	}
	if err := r.startMIGManager(pod, m); err != nil {
		return err
	}
	if m.watchHung, err = r.watchHung(pod); err != nil {
		return err
	}
	for {
		if time.Now().Before(m.until) {
			r.again.at(m.until)
			return nil
		}
		if more, err := r.advance(pod, m); err != nil || !more {
			return err
		}
	}
}

// migProcess returns the process of a pod; after a restart of the simulator it resumes the change in progress.
func (r *reconciliation) migProcess(pod *Pod) *migProcess {
	m := r.memory.managers[string(pod.UID)]
	if m != nil {
		return m
	}
	m = &migProcess{}
	if pod.State == "" {
		r.remountVolumes(pod)
	} else if json.Unmarshal([]byte(pod.State), &m.migState) == nil && m.Before != nil {
		m.step, m.since = draining, time.Now()
	}
	r.memory.managers[string(pod.UID)] = m
	return m
}

// advance executes one step; it returns false if there is nothing to do until the next event.
func (r *reconciliation) advance(pod *Pod, m *migProcess) (bool, error) {
	switch m.step {
	case checking:
		return true, r.check(pod, m)
	case draining:
		return r.drain(pod, m)
	case switching:
		return r.switchMode(pod, m)
	case creating:
		return true, r.createDevices(pod, m)
	}
	if m.watchHung {
		return false, nil
	}
	// A label that is removed and set again triggers a change, as does a new value; a removal alone is read later.
	if event := r.takeMIGConfigEvent(r.node.Name); r.node.MIGConfig == m.Read && !(event && m.Read != "") {
		return false, nil
	}
	m.Read, m.lines = r.node.MIGConfig, nil
	r.proceed(m, checking, rules.MIGCheck)
	return true, nil
}

// watchHung returns whether the process of this pod no longer receives label changes. The fault permanently hangs the watch of
// one process: the one that is running when the fault is injected, or the first one started later. A new pod or a reboot
// starts a new process.
func (r *reconciliation) watchHung(pod *Pod) (bool, error) {
	process := string(pod.UID) + "/" + r.node.BootID
	hung := cmp.Or(r.memory.hungProcess, r.node.HungProcess)
	if hung == process {
		return true, nil
	}
	if !r.node.Faults.Has(rules.MIGWatchHung) {
		return false, r.markHung("", hung)
	}
	if hung != "" {
		return false, nil
	}
	return true, r.markHung(process, hung)
}

// markHung stores which process the fault has hung; an empty process allows it to hang another one.
func (r *reconciliation) markHung(process, before string) error {
	if process == before {
		return nil
	}
	var kept any
	if process != "" {
		kept = process
	}
	if err := r.patchMetadata(nil, object{hungAnnotation: kept}); err != nil {
		return err
	}
	r.memory.hungProcess = process
	return nil
}

func (r *reconciliation) proceed(m *migProcess, next migStep, after time.Duration) {
	m.step, m.until = next, time.Now().Add(r.scaledForNode(after))
}

// failed ends a failed change. The operands run again only if the process has never completed a change: the program stores
// that in a global variable, which it never resets.
func (r *reconciliation) failed(pod *Pod, m *migProcess, err error) error {
	m.log("error", "Error: "+err.Error())
	return r.finish(pod, m, rules.MIGStateFailed, !m.Completed)
}

// finish writes the state and, with resume, the labels that let the operands run again.
func (r *reconciliation) finish(pod *Pod, m *migProcess, state string, resume bool) error {
	labels := map[string]string{}
	if resume {
		labels = rules.ResumeLabels(m.Before, m.pausesClients)
	}
	labels[rules.MIGStateLabel] = state
	if err := r.patchMetadata(labels, nil); err != nil {
		return err
	}
	return r.endChange(pod, m)
}

// endChange returns to waiting for the label; values that were set and replaced in the meantime are lost.
func (r *reconciliation) endChange(pod *Pod, m *migProcess) error {
	m.Before, m.step, m.until = nil, idle, time.Time{}
	r.takeMIGConfigEvent(r.node.Name)
	if len(m.lines) > 0 {
		r.logs.replace(pod, migManager, m.lines, time.Now())
	}
	return r.remember(pod, m)
}

func (m *migProcess) log(level, line string) {
	m.lines = append(m.lines, fmt.Sprintf("time=%q level=%s msg=%q", time.Now().UTC().Format(time.RFC3339), level, line))
}

func (r *reconciliation) remember(pod *Pod, m *migProcess) error {
	text, err := json.Marshal(m.migState)
	if err != nil {
		return err
	}
	return r.annotate(pod, stateAnnotation, string(text))
}
