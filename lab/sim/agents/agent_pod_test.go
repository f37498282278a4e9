// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestCrashBacksOffAndIsForgiven(t *testing.T) {
	r := &reconciliation{Simulator: &Simulator{options: Options{Scale: 0.001}}}
	c := &crash{}
	var waits []time.Duration
	for range 3 {
		c.fail(errors.New("bad"), r)
		waits = append(waits, c.retry.Sub(c.ended))
	}
	if waits[0] != 10*time.Millisecond || waits[1] != 20*time.Millisecond || waits[2] != 40*time.Millisecond || c.restarts != 3 {
		t.Errorf("%v after %d restarts", waits, c.restarts)
	}
	if !c.waiting(r) || r.again.after == 0 {
		t.Error("it does not wait for its back-off")
	}
	c.failing, c.ended = false, time.Now().Add(-time.Minute)
	c.fail(errors.New("bad"), r)
	if wait := c.retry.Sub(c.ended); wait != 10*time.Millisecond || c.restarts != 4 {
		t.Errorf("%v after a long run, %d restarts", wait, c.restarts)
	}
}

func TestResume(t *testing.T) {
	pod := &Pod{Mains: []container{
		{Name: devicePlugin, Status: corev1.ContainerStatus{RestartCount: 4, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}},
		{Name: configManager, Status: corev1.ContainerStatus{RestartCount: 1}},
	}}
	a := &agent{}
	a.resume(pod)
	if !a.main.failing || a.main.restarts != 4 || a.manager.failing || a.manager.restarts != 1 {
		t.Errorf("%+v", a)
	}
}

func TestFillLeavesAnUnchangedStatusAlone(t *testing.T) {
	pod, c := &Pod{}, &crash{failing: true, restarts: 2, streak: 2, ended: time.Now()}
	var status corev1.ContainerStatus
	fill(&status, pod, devicePlugin, c)
	if status.State.Waiting == nil || status.State.Waiting.Reason != "CrashLoopBackOff" || status.RestartCount != 2 || status.LastTerminationState.Terminated.ExitCode != 1 {
		t.Errorf("%+v", status)
	}
	before := status.State.Waiting
	fill(&status, pod, devicePlugin, c)
	if status.State.Waiting != before {
		t.Error("an unchanged status was written again")
	}
	c.failing = false
	fill(&status, pod, devicePlugin, c)
	if status.State.Running == nil || !status.Ready {
		t.Errorf("%+v", status)
	}
}
