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

// step is what a MIG manager is busy with.
type step int

const (
	idle step = iota
	checking
	draining
	switching
	cutting
)

// partitioner is the process of one nvidia-mig-manager pod, v0.13 (cmd/nvidia-mig-manager and pkg/mig/reconfigure of
// NVIDIA/mig-parted): it obeys the label nvidia.com/mig.config, one change after the other.
type partitioner struct {
	kept
	step  step
	until time.Time // the step is not over before
	since time.Time // the present operand is waited for since
	stage int       // which of the operands that is
	lines []string
	deaf  bool // a change that is under way goes on, and is the last one
}

// kept is what outlives the simulator, in an annotation of the pod. Before is what the node's deploy labels said when
// they were paused; it is there as long as a change is under way.
type kept struct {
	Read      string            `json:"read"`
	Completed bool              `json:"completed,omitempty"`
	Before    map[string]string `json:"before,omitempty"`
}

// partition lets the MIG manager go on, as far as it can without waiting.
func (v *visit) partition(pod *Pod) (err error) {
	if !pod.Running() || v.node.Hardware == nil {
		return nil
	}
	m := v.partitioner(pod)
	if _, present := v.mounted(pod); !present && m.Read == "" && m.step == idle {
		return nil // like the kubelet: nothing starts before the volume can be mounted
	}
	if m.deaf, err = v.deaf(pod); err != nil {
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

// partitioner finds the process of a pod; after the simulator was restarted it goes on where it was.
func (v *visit) partitioner(pod *Pod) *partitioner {
	m := v.memory.managers[string(pod.UID)]
	if m != nil {
		return m
	}
	m = &partitioner{}
	if pod.State == "" {
		v.mountAnew(pod)
	} else if json.Unmarshal([]byte(pod.State), &m.kept) == nil && m.Before != nil {
		m.step, m.since = draining, time.Now()
	}
	v.memory.managers[string(pod.UID)] = m
	return m
}

// advance takes one step; it returns false when there is nothing to do until something happens.
func (v *visit) advance(pod *Pod, m *partitioner) (bool, error) {
	switch m.step {
	case checking:
		return true, v.check(pod, m)
	case draining:
		return v.drain(pod, m)
	case switching:
		return v.switchMode(pod, m)
	case cutting:
		return true, v.cut(pod, m)
	}
	if m.deaf {
		return false, nil
	}
	// A label that goes and comes again is a reason to act, as is another value; one that only goes is read later on.
	if poked := v.unpoke(v.node.Name); v.node.MIGConfig == m.Read && !(poked && m.Read != "") {
		return false, nil
	}
	m.Read, m.lines = v.node.MIGConfig, nil
	v.proceed(m, checking, rules.MIGCheck)
	return true, nil
}

// deaf tells whether the process of this pod hears of its label no more. The fault hangs the watch of one process, that
// which lives when it is put or starts as the first after it, for good; a new pod or boot is another process.
func (v *visit) deaf(pod *Pod) (bool, error) {
	process := string(pod.UID) + "/" + v.node.BootID
	struck := cmp.Or(v.memory.struck, v.node.Struck)
	if struck == process {
		return true, nil
	}
	if !v.node.Faults.Has(rules.MIGDeaf) {
		return false, v.strike("", struck)
	}
	if struck != "" {
		return false, nil
	}
	return true, v.strike(process, struck)
}

// strike keeps which process the fault has hung, or that it may hang another one.
func (v *visit) strike(process, before string) error {
	if process == before {
		return nil
	}
	var kept any
	if process != "" {
		kept = process
	}
	if err := v.relabel(nil, object{struckAnnotation: kept}); err != nil {
		return err
	}
	v.memory.struck = process
	return nil
}

func (v *visit) proceed(m *partitioner, next step, after time.Duration) {
	m.step, m.until = next, time.Now().Add(v.paced(after))
}

// failed ends a change that went wrong. The operands run again only in a process that has never completed a change:
// that it has is kept in a variable of the whole program, which nothing resets.
func (v *visit) failed(pod *Pod, m *partitioner, err error) error {
	m.say("error", "Error: "+err.Error())
	return v.finish(pod, m, rules.MIGStateFailed, !m.Completed)
}

// finish writes the state and, if they are to run again, the labels of the operands.
func (v *visit) finish(pod *Pod, m *partitioner, state string, resume bool) error {
	labels := map[string]string{}
	if resume {
		labels = rules.Resumed(m.Before)
	}
	labels[rules.MIGStateLabel] = state
	if err := v.relabel(labels, nil); err != nil {
		return err
	}
	return v.over(pod, m)
}

// over goes back to waiting for the label; values that came and went in between are lost.
func (v *visit) over(pod *Pod, m *partitioner) error {
	m.Before, m.step, m.until = nil, idle, time.Time{}
	v.unpoke(v.node.Name)
	if len(m.lines) > 0 {
		v.logs.said(pod, migManager, m.lines, time.Now())
	}
	return v.remember(pod, m)
}

func (m *partitioner) say(level, line string) {
	m.lines = append(m.lines, fmt.Sprintf("time=%q level=%s msg=%q", time.Now().UTC().Format(time.RFC3339), level, line))
}

func (v *visit) remember(pod *Pod, m *partitioner) error {
	text, err := json.Marshal(m.kept)
	if err != nil {
		return err
	}
	return v.annotate(pod, stateAnnotation, string(text))
}
