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
	f := newFixture(t)
	f.settle()
	f.check("no label", "", "true")
	f.setConfig("all-disabled")
	f.check("already applied", "success", "true")
	if f.labels[nvsmLabel] != "true" || f.labels["nvidia.com/gpu.deploy.dcgm"] != "false" {
		t.Errorf("%v", f.labels)
	}
	f.setConfig("halves")
	f.check("a change", "pending success", "true")
	f.checkDevices("a change", "3g.40gb", 4)
	if strings.Join(f.deleted, " ") != "nvidia-cuda-validator nvidia-operator-validator" {
		t.Errorf("deleted %v", f.deleted)
	}
	f.setConfig("whole")
	f.check("another", "pending success", "true")
	f.checkDevices("another", "7g.80gb", 2)
	f.setConfig("")
	f.check("no label any longer", "failed", "true")
	f.setConfig("whole")
	f.check("back", "success", "true")
	f.labels[rules.MIGStateLabel] = ""
	f.setConfig("whole")
	f.check("taken off and put on again while it was idle", "success", "true")
}

func TestMIGFailures(t *testing.T) {
	for _, test := range []struct {
		name, config, fault string
		devices             string
	}{
		{name: "unknown name", config: "thirds"},
		{name: "does not fit", config: "too-much"},
		{name: "held by an unknown process", config: "halves", fault: rules.MIGFailed},
		{name: "a pod has a GPU", config: "halves", devices: rules.UUID("n1", 1)},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			if test.fault != "" {
				f.r.node.Faults[test.fault] = ""
			}
			if test.devices != "" {
				f.r.pods = append(f.r.pods, &Pod{ObjectMeta: metav1.ObjectMeta{Name: "work", UID: "f"}, Phase: corev1.PodRunning, Devices: `{"c": {"nvidia.com/gpu": ["` + test.devices + `"]}}`})
			}
			f.setConfig(test.config)
			states := "pending failed"
			if test.config == "thirds" {
				states = "failed"
			}
			f.check("the first change of a process", states, "true")
			f.checkDevices(test.name, "", 0)
			if !strings.Contains(strings.Join(f.r.memory.managers["first"].lines, "\n"), "level=error") {
				t.Error("its log contains no error")
			}
		})
	}
}

// After the first completed change, the MIG manager does not resume the operands after a failure until it is restarted.
func TestMIGFailureAfterASuccess(t *testing.T) {
	f := newFixture(t)
	f.setConfig("halves")
	f.check("the first change", "pending success", "true")
	f.r.node.Faults[rules.MIGFailed] = ""
	f.setConfig("whole")
	f.check("the second fails", "pending failed", paused)
	f.checkDevices("in use", "3g.40gb", 4)
	delete(f.r.node.Faults, rules.MIGFailed)
	f.setConfig("halves")
	f.check("back to what is still applied", "success", paused)
	f.start("second")
	f.settle()
	f.check("a new process", "success", "true")
}

func TestMIGPendingForEver(t *testing.T) {
	for name, fault := range map[string]string{"an operand stays": "", "the fault": rules.MIGPending} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			if f.stuck = fault == ""; !f.stuck {
				f.r.node.Faults[fault] = ""
			}
			f.setConfig("halves")
			f.check("given up", "pending", paused)
			f.checkDevices("given up", "", 0)
			f.stuck = false
			delete(f.r.node.Faults, fault)
			f.r.pods = slices.DeleteFunc(f.r.pods, func(pod *Pod) bool { return pod.App == plugins })
			f.settle()
			f.check("no retry", "", paused)
			f.start("second")
			f.settle()
			f.check("a new process", "pending success", "true")
			f.checkDevices("a new process", "3g.40gb", 4)
		})
	}
}

func TestMIGReboot(t *testing.T) {
	f := newFixture(t)
	f.r.node.Faults[rules.MIGReboot] = ""
	f.setConfig("halves")
	f.check("on", "pending rebooting pending success", "true")
	f.checkDevices("on", "3g.40gb", 4)
	f.setConfig("whole")
	f.check("no change of the mode", "pending success", "true")
	f.setConfig("all-disabled")
	f.check("off", "pending rebooting success", "true")
	f.manager.Env["WITH_REBOOT"] = "false"
	f.setConfig("halves")
	f.check("forbidden", "pending failed", "true")
	if len(f.boots) != 2 || f.boots[0] == f.boots[1] {
		t.Errorf("boot ids %v", f.boots)
	}
}

// After a reboot by another component, the pending mode is in effect, and the MIG manager reads its label again.
func TestMIGAfterAReboot(t *testing.T) {
	f := newFixture(t)
	f.r.node.Faults[rules.MIGReboot] = ""
	f.manager.Env["WITH_REBOOT"] = "false"
	f.setConfig("halves")
	f.check("no reboot of its own", "pending failed", "true")
	f.checkDevices("no reboot of its own", "", 0)
	f.r.node.RebootRequest = "asked-1"
	f.settle()
	f.check("after the reboot", "pending success", "true")
	f.checkDevices("after the reboot", "3g.40gb", 4)
	f.settle()
	f.check("the same config", "", "true")
	f.r.node.RebootRequest = "asked-2"
	f.settle()
	f.check("a reboot takes the devices, and they are made again", "pending success", "true")
	f.checkDevices("another reboot", "3g.40gb", 4)
	if len(f.boots) != 2 || f.boots[0] == f.boots[1] {
		t.Errorf("boot ids %v", f.boots)
	}
}

func TestAgentsRestartWithTheirNode(t *testing.T) {
	f := newFixture(t)
	crashed := corev1.ContainerStatus{RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}
	plugin := &Pod{ObjectMeta: metav1.ObjectMeta{Name: "plugin", Namespace: namespace, UID: "p"}, Operand: devicePlugin, Phase: corev1.PodRunning,
		State: `{"label": "old"}`, Mains: []container{{Name: devicePlugin, Status: crashed}}}
	f.r.pods = append(f.r.pods, plugin)
	f.r.memory.agents["p"] = &agent{started: true, config: &rules.Config{}}
	f.r.memory.endpoints = map[string]*endpoint{"nvidia.com/gpu": {ids: []string{"a"}, size: 1}}
	f.r.node.RebootRequest = "asked"
	f.settle()
	a := f.r.memory.agents["p"]
	if a.started || a.config != nil || a.main.failing || a.main.restarts != 3 || f.r.memory.endpoints != nil {
		t.Errorf("%+v, %v", a, f.r.memory.endpoints)
	}
}

// A process whose watch hangs completes the current change, and receives no other; a new process is not affected by the fault.
func TestMIGWatchHung(t *testing.T) {
	f := newFixture(t)
	f.setConfig("halves")
	f.check("before", "pending success", "true")
	f.r.node.Faults[rules.MIGWatchHung] = ""
	f.setConfig("whole")
	f.check("the state does not change", "", "true")
	f.labels[rules.MIGStateLabel] = ""
	f.setConfig("whole")
	f.check("an empty state does not change", "", "true")
	delete(f.r.node.Faults, rules.MIGWatchHung)
	f.settle()
	f.check("the watch still hangs without the fault", "", "true")
	f.checkDevices("watch hung", "3g.40gb", 4)
	f.r.node.Faults[rules.MIGWatchHung] = ""
	f.start("second")
	f.settle()
	f.check("a new process, although the fault is set", "pending success", "true")
	f.checkDevices("a new process", "7g.80gb", 2)
	f.setConfig("halves")
	f.check("it receives further changes", "pending success", "true")
	f.r.memory = newMemory("n")
	f.setConfig("whole")
	f.check("also after a restart of the simulator", "pending success", "true")
	delete(f.r.node.Faults, rules.MIGWatchHung)
	f.settle()
	f.r.node.Faults[rules.MIGWatchHung] = ""
	f.setConfig("halves")
	f.check("injected again, it hangs the running process", "", "true")
	f.r.node.RebootRequest = "asked"
	f.settle()
	f.check("a boot starts another process", "pending success", "true")
	f.checkDevices("a boot", "3g.40gb", 4)
}

func TestMIGWatchHungFromTheStart(t *testing.T) {
	f := newFixture(t)
	f.labels[rules.MIGConfigLabel] = "halves"
	f.r.node.Faults[rules.MIGWatchHung] = ""
	f.settle()
	f.check("the first process that starts", "", "true")
	f.start("second")
	f.settle()
	f.check("the second", "pending success", "true")
}

func TestMIGPartial(t *testing.T) {
	f := newFixture(t)
	f.r.node.Faults[rules.MIGPartial] = ""
	f.setConfig("halves")
	f.check("a part", "pending success", "true")
	f.checkDevices("a part", "3g.40gb", 2)
	delete(f.r.node.Faults, rules.MIGPartial)
	f.settle()
	f.check("no further check", "", "true")
	f.start("second")
	f.settle()
	f.check("a new process", "pending success", "true")
	f.checkDevices("a new process", "3g.40gb", 4)
}

func TestMIGPaused(t *testing.T) {
	f := newFixture(t)
	f.r.node.Faults[rules.MIGPaused] = ""
	f.setConfig("halves")
	f.check("success, and paused", "pending success", paused)
	f.checkDevices("success, and paused", "3g.40gb", 4)
	delete(f.r.node.Faults, rules.MIGPaused)
	f.setConfig("halves")
	f.check("what is applied already resumes nothing", "success", paused)
	f.r.node.Faults[rules.MIGPaused] = ""
	f.start("second")
	f.settle()
	f.check("a new process, although the fault is set", "success", "true")
}

func TestMIGRebootThatDoesNotHelp(t *testing.T) {
	f := newFixture(t)
	f.r.node.Hardware.Compute = "9.0"
	f.manager.Env["WITH_REBOOT"] = "true"
	f.r.node.Faults[rules.MIGFailed] = ""
	f.setConfig("halves")
	f.check("held before and after", "pending rebooting failed", "true")
}

func TestMIGResumesAfterARestartOfTheSimulator(t *testing.T) {
	f := newFixture(t)
	f.stuck = true
	f.labels[rules.MIGConfigLabel] = "halves"
	for f.manager.State == "" {
		f.syncNode()
		if err := f.r.reconcileMIG(f.manager); err != nil {
			t.Fatal(err)
		}
	}
	f.check("under way", "pending", paused)
	f.r.memory, f.r.migConfigEvents = newMemory("n"), map[string]bool{}
	f.r.pods = slices.DeleteFunc(f.r.pods, func(pod *Pod) bool { return pod.App == plugins })
	f.settle()
	f.check("restarted", "success", "true")
	f.r.memory = newMemory("n")
	f.settle()
	f.check("restarted when all was done", "", "true")
}

func TestNoMIGManagerWithoutItsConfig(t *testing.T) {
	f := newFixture(t)
	f.manager.ConfigMap = namespace + "/missing"
	f.setConfig("halves")
	f.check("no ConfigMap", "", "true")
}
