// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lab.invalid/sim/rules"
)

const paused = "paused-for-mig-change"

func TestMIGChange(t *testing.T) {
	w := newFixture(t)
	w.settle()
	w.check("no label", "", "true")
	w.setConfig("all-disabled")
	w.check("already applied", "success", "true")
	if w.labels[nvsmLabel] != "true" || w.labels["nvidia.com/gpu.deploy.dcgm"] != "false" {
		t.Errorf("%v", w.labels)
	}
	w.setConfig("halves")
	w.check("a change", "pending success", "true")
	w.checkDevices("a change", "3g.40gb", 4)
	if strings.Join(w.deleted, " ") != "nvidia-cuda-validator nvidia-operator-validator" {
		t.Errorf("deleted %v", w.deleted)
	}
	w.setConfig("whole")
	w.check("another", "pending success", "true")
	w.checkDevices("another", "7g.80gb", 2)
	w.setConfig("")
	w.check("no label any more", "failed", "true")
	w.setConfig("whole")
	w.check("back", "success", "true")
	w.labels[rules.MIGStateLabel] = ""
	w.setConfig("whole")
	w.check("taken off and put on again while it was idle", "success", "true")
}

func TestMIGFailures(t *testing.T) {
	for _, test := range []struct {
		name, config, fault string
		devices             string
	}{
		{name: "unknown name", config: "thirds"},
		{name: "does not fit", config: "too-much"},
		{name: "held by somebody", config: "halves", fault: rules.MIGFailed},
		{name: "a pod has a GPU", config: "halves", devices: rules.UUID("n1", 1)},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newFixture(t)
			if test.fault != "" {
				w.v.node.Faults[test.fault] = ""
			}
			if test.devices != "" {
				w.v.pods = append(w.v.pods, &Pod{ObjectMeta: metav1.ObjectMeta{Name: "work", UID: "w"}, Phase: corev1.PodRunning, Devices: `{"c": {"nvidia.com/gpu": ["` + test.devices + `"]}}`})
			}
			w.setConfig(test.config)
			states := "pending failed"
			if test.config == "thirds" {
				states = "failed"
			}
			w.check("the first change of a process", states, "true")
			w.checkDevices(test.name, "", 0)
			if !strings.Contains(strings.Join(w.v.memory.managers["first"].lines, "\n"), "level=error") {
				t.Error("its log does not say why")
			}
		})
	}
}

// The MIG manager forgets to let the operands run again once it has completed a change, until it is started anew.
func TestMIGFailureAfterASuccess(t *testing.T) {
	w := newFixture(t)
	w.setConfig("halves")
	w.check("the first change", "pending success", "true")
	w.v.node.Faults[rules.MIGFailed] = ""
	w.setConfig("whole")
	w.check("the second fails", "pending failed", paused)
	w.checkDevices("in use", "3g.40gb", 4)
	delete(w.v.node.Faults, rules.MIGFailed)
	w.setConfig("halves")
	w.check("back to what is still applied", "success", paused)
	w.start("second")
	w.settle()
	w.check("a new process", "success", "true")
}

func TestMIGPendingForEver(t *testing.T) {
	for name, fault := range map[string]string{"an operand stays": "", "the fault": rules.MIGPending} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			if w.stuck = fault == ""; !w.stuck {
				w.v.node.Faults[fault] = ""
			}
			w.setConfig("halves")
			w.check("given up", "pending", paused)
			w.checkDevices("given up", "", 0)
			w.stuck = false
			delete(w.v.node.Faults, fault)
			w.v.pods = slices.DeleteFunc(w.v.pods, func(pod *Pod) bool { return pod.App == plugins })
			w.settle()
			w.check("nobody tries again", "", paused)
			w.start("second")
			w.settle()
			w.check("a new process", "pending success", "true")
			w.checkDevices("a new process", "3g.40gb", 4)
		})
	}
}

func TestMIGReboot(t *testing.T) {
	w := newFixture(t)
	w.v.node.Faults[rules.MIGReboot] = ""
	w.setConfig("halves")
	w.check("on", "pending rebooting pending success", "true")
	w.checkDevices("on", "3g.40gb", 4)
	w.setConfig("whole")
	w.check("no change of the mode", "pending success", "true")
	w.setConfig("all-disabled")
	w.check("off", "pending rebooting success", "true")
	w.manager.Env["WITH_REBOOT"] = "false"
	w.setConfig("halves")
	w.check("forbidden", "pending failed", "true")
	if len(w.boots) != 2 || w.boots[0] == w.boots[1] {
		t.Errorf("boot ids %v", w.boots)
	}
}

// Somebody else reboots the node: the mode that was pending is the mode, and the MIG manager looks at its label again.
func TestMIGAfterAReboot(t *testing.T) {
	w := newFixture(t)
	w.v.node.Faults[rules.MIGReboot] = ""
	w.manager.Env["WITH_REBOOT"] = "false"
	w.setConfig("halves")
	w.check("no reboot of its own", "pending failed", "true")
	w.checkDevices("no reboot of its own", "", 0)
	w.v.node.RebootRequest = "asked-1"
	w.settle()
	w.check("after the reboot", "pending success", "true")
	w.checkDevices("after the reboot", "3g.40gb", 4)
	w.settle()
	w.check("the same wish", "", "true")
	w.v.node.RebootRequest = "asked-2"
	w.settle()
	w.check("a reboot takes the devices, and they are made again", "pending success", "true")
	w.checkDevices("another reboot", "3g.40gb", 4)
	if len(w.boots) != 2 || w.boots[0] == w.boots[1] {
		t.Errorf("boot ids %v", w.boots)
	}
}

func TestAgentsStartAnewWithTheirNode(t *testing.T) {
	w := newFixture(t)
	crashed := corev1.ContainerStatus{RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}
	plugin := &Pod{ObjectMeta: metav1.ObjectMeta{Name: "plugin", Namespace: namespace, UID: "p"}, Operand: devicePlugin, Phase: corev1.PodRunning,
		State: `{"label": "old"}`, Mains: []container{{Name: devicePlugin, Status: crashed}}}
	w.v.pods = append(w.v.pods, plugin)
	w.v.memory.agents["p"] = &agent{started: true, config: &rules.Config{}}
	w.v.memory.endpoints = map[string]*endpoint{"nvidia.com/gpu": {ids: []string{"a"}, size: 1}}
	w.v.node.RebootRequest = "asked"
	w.settle()
	a := w.v.memory.agents["p"]
	if a.started || a.config != nil || a.main.failing || a.main.restarts != 3 || w.v.memory.endpoints != nil {
		t.Errorf("%+v, %v", a, w.v.memory.endpoints)
	}
}

// A process whose watch hangs ends the change it is at, and hears of no other; a new one does, whatever the fault says.
func TestMIGDeaf(t *testing.T) {
	w := newFixture(t)
	w.setConfig("halves")
	w.check("before", "pending success", "true")
	w.v.node.Faults[rules.MIGWatchHung] = ""
	w.setConfig("whole")
	w.check("the state that stood there stays", "", "true")
	w.labels[rules.MIGStateLabel] = ""
	w.setConfig("whole")
	w.check("none stays none", "", "true")
	delete(w.v.node.Faults, rules.MIGWatchHung)
	w.settle()
	w.check("the fault goes, the watch hangs on", "", "true")
	w.checkDevices("watchHung", "3g.40gb", 4)
	w.v.node.Faults[rules.MIGWatchHung] = ""
	w.start("second")
	w.settle()
	w.check("a new process, although the fault is there", "pending success", "true")
	w.checkDevices("a new process", "7g.80gb", 2)
	w.setConfig("halves")
	w.check("it goes on hearing", "pending success", "true")
	w.v.memory = newMemory("n")
	w.setConfig("whole")
	w.check("after the simulator too", "pending success", "true")
	delete(w.v.node.Faults, rules.MIGWatchHung)
	w.settle()
	w.v.node.Faults[rules.MIGWatchHung] = ""
	w.setConfig("halves")
	w.check("put again, it hangs the process that lives", "", "true")
	w.v.node.RebootRequest = "asked"
	w.settle()
	w.check("a boot starts another process", "pending success", "true")
	w.checkDevices("a boot", "3g.40gb", 4)
}

func TestMIGDeafAtOnce(t *testing.T) {
	w := newFixture(t)
	w.labels[rules.MIGConfigLabel] = "halves"
	w.v.node.Faults[rules.MIGWatchHung] = ""
	w.settle()
	w.check("the first process that starts", "", "true")
	w.start("second")
	w.settle()
	w.check("the second", "pending success", "true")
}

func TestMIGPartial(t *testing.T) {
	w := newFixture(t)
	w.v.node.Faults[rules.MIGPartial] = ""
	w.setConfig("halves")
	w.check("a part", "pending success", "true")
	w.checkDevices("a part", "3g.40gb", 2)
	delete(w.v.node.Faults, rules.MIGPartial)
	w.settle()
	w.check("nobody looks again", "", "true")
	w.start("second")
	w.settle()
	w.check("a new process", "pending success", "true")
	w.checkDevices("a new process", "3g.40gb", 4)
}

func TestMIGPaused(t *testing.T) {
	w := newFixture(t)
	w.v.node.Faults[rules.MIGPaused] = ""
	w.setConfig("halves")
	w.check("success, and paused", "pending success", paused)
	w.checkDevices("success, and paused", "3g.40gb", 4)
	delete(w.v.node.Faults, rules.MIGPaused)
	w.setConfig("halves")
	w.check("what is applied already resumes nothing", "success", paused)
	w.v.node.Faults[rules.MIGPaused] = ""
	w.start("second")
	w.settle()
	w.check("a new process, although the fault is there", "success", "true")
}

func TestMIGRebootThatDoesNotHelp(t *testing.T) {
	w := newFixture(t)
	w.v.node.Hardware.Compute = "9.0"
	w.manager.Env["WITH_REBOOT"] = "true"
	w.v.node.Faults[rules.MIGFailed] = ""
	w.setConfig("halves")
	w.check("held before and after", "pending rebooting failed", "true")
}

func TestMIGGoesOnAfterTheSimulator(t *testing.T) {
	w := newFixture(t)
	w.stuck = true
	w.labels[rules.MIGConfigLabel] = "halves"
	for w.manager.State == "" {
		w.syncNode()
		if err := w.v.reconcileMIG(w.manager); err != nil {
			t.Fatal(err)
		}
	}
	w.check("under way", "pending", paused)
	w.v.memory, w.v.migConfigEvents = newMemory("n"), map[string]bool{}
	w.v.pods = slices.DeleteFunc(w.v.pods, func(pod *Pod) bool { return pod.App == plugins })
	w.settle()
	w.check("restarted", "success", "true")
	w.v.memory = newMemory("n")
	w.settle()
	w.check("restarted when all was done", "", "true")
}

func TestNoMIGManagerWithoutItsConfig(t *testing.T) {
	w := newFixture(t)
	w.manager.ConfigMap = namespace + "/missing"
	w.setConfig("halves")
	w.check("no ConfigMap", "", "true")
}
