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

// migStep is what a MIG manager is busy with.
type migStep int

const (
	idle migStep = iota
	checking
	draining
	switching
	creating
)

// migProcess is the process of one nvidia-mig-manager pod, v0.13 (cmd/nvidia-mig-manager and pkg/mig/reconfigure of
// NVIDIA/mig-parted): it obeys the label nvidia.com/mig.config, one change after the other.
type migProcess struct {
	migState
	step      migStep
	until     time.Time // the step is not over before
	since     time.Time // the present operand is waited for since
	stage     int       // which of the operands that is
	lines     []string
	watchHung bool // a change that is under way goes on, and is the last one
}

// migState is what outlives the simulator, in an annotation of the pod. Before is what the node's deploy labels said when
// they were paused; it is there as long as a change is under way.
type migState struct {
	Read      string            `json:"read"`
	Completed bool              `json:"completed,omitempty"`
	Before    map[string]string `json:"before,omitempty"`
}

// reconcileMIG lets the MIG manager go on, as far as it can without waiting.
func (v *reconciliation) reconcileMIG(pod *Pod) (err error) {
	if !pod.Running() || v.node.Hardware == nil {
		return nil
	}
	m := v.migProcess(pod)
	if _, present := v.mounted(pod); !present && m.Read == "" && m.step == idle {
		return nil // like the kubelet: nothing starts before the volume can be mounted
	}
	if m.watchHung, err = v.watchHung(pod); err != nil {
		return err
	}
	for {
		if time.Now().Before(m.until) {
			v.again.at(m.until)
			return nil
		}
		if more, err := v.advance(pod, m); err != nil || !more {
			return err
		}
	}
}

// migProcess finds the process of a pod; after the simulator was restarted it goes on where it was.
func (v *reconciliation) migProcess(pod *Pod) *migProcess {
	m := v.memory.managers[string(pod.UID)]
	if m != nil {
		return m
	}
	m = &migProcess{}
	if pod.State == "" {
		v.remountVolumes(pod)
	} else if json.Unmarshal([]byte(pod.State), &m.migState) == nil && m.Before != nil {
		m.step, m.since = draining, time.Now()
	}
	v.memory.managers[string(pod.UID)] = m
	return m
}

// advance takes one step; it returns false when there is nothing to do until something happens.
func (v *reconciliation) advance(pod *Pod, m *migProcess) (bool, error) {
	switch m.step {
	case checking:
		return true, v.check(pod, m)
	case draining:
		return v.drain(pod, m)
	case switching:
		return v.switchMode(pod, m)
	case creating:
		return true, v.createDevices(pod, m)
	}
	if m.watchHung {
		return false, nil
	}
	// A label that goes and comes again is a reason to act, as is another value; one that only goes is read later on.
	if migConfigEvents := v.takeMIGConfigEvent(v.node.Name); v.node.MIGConfig == m.Read && !(migConfigEvents && m.Read != "") {
		return false, nil
	}
	m.Read, m.lines = v.node.MIGConfig, nil
	v.proceed(m, checking, rules.MIGCheck)
	return true, nil
}

// watchHung tells whether the process of this pod hears of its label no more. The fault hangs the watch of one process, that
// which lives when it is put or starts as the first after it, for good; a new pod or boot is another process.
func (v *reconciliation) watchHung(pod *Pod) (bool, error) {
	process := string(pod.UID) + "/" + v.node.BootID
	hung := cmp.Or(v.memory.hungProcess, v.node.HungProcess)
	if hung == process {
		return true, nil
	}
	if !v.node.Faults.Has(rules.MIGWatchHung) {
		return false, v.markHung("", hung)
	}
	if hung != "" {
		return false, nil
	}
	return true, v.markHung(process, hung)
}

// strike keeps which process the fault has hung, or that it may hang another one.
func (v *reconciliation) markHung(process, before string) error {
	if process == before {
		return nil
	}
	var kept any
	if process != "" {
		kept = process
	}
	if err := v.patchMetadata(nil, object{hungAnnotation: kept}); err != nil {
		return err
	}
	v.memory.hungProcess = process
	return nil
}

func (v *reconciliation) proceed(m *migProcess, next migStep, after time.Duration) {
	m.step, m.until = next, time.Now().Add(v.scaledForNode(after))
}

// failed ends a change that went wrong. The operands run again only in a process that has never completed a change:
// that it has is kept in a variable of the whole program, which nothing resets.
func (v *reconciliation) failed(pod *Pod, m *migProcess, err error) error {
	m.log("error", "Error: "+err.Error())
	return v.finish(pod, m, rules.MIGStateFailed, !m.Completed)
}

// finish writes the state and, if they are to run again, the labels of the operands.
func (v *reconciliation) finish(pod *Pod, m *migProcess, state string, resume bool) error {
	labels := map[string]string{}
	if resume {
		labels = rules.ResumeLabels(m.Before)
	}
	labels[rules.MIGStateLabel] = state
	if err := v.patchMetadata(labels, nil); err != nil {
		return err
	}
	return v.endChange(pod, m)
}

// endChange goes back to waiting for the label; values that came and went in between are lost.
func (v *reconciliation) endChange(pod *Pod, m *migProcess) error {
	m.Before, m.step, m.until = nil, idle, time.Time{}
	v.takeMIGConfigEvent(v.node.Name)
	if len(m.lines) > 0 {
		v.logs.replace(pod, migManager, m.lines, time.Now())
	}
	return v.remember(pod, m)
}

func (m *migProcess) log(level, line string) {
	m.lines = append(m.lines, fmt.Sprintf("time=%q level=%s msg=%q", time.Now().UTC().Format(time.RFC3339), level, line))
}

func (v *reconciliation) remember(pod *Pod, m *migProcess) error {
	text, err := json.Marshal(m.migState)
	if err != nil {
		return err
	}
	return v.annotate(pod, stateAnnotation, string(text))
}
