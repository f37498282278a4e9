// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lab.invalid/sim/rules"
)

func TestThePluginLooksForItsDaemonNowAndThen(t *testing.T) {
	config, err := rules.PluginConfig("sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}", rules.Environment{MPSRoot: "/mps"})
	if err != nil {
		t.Fatal(err)
	}
	plugin := &agent{config: config, offers: map[string][]string{"nvidia.com/gpu": {"a::0", "a::1"}}}
	daemon := &agent{config: config, serves: []string{"nvidia.com/gpu.shared"}}
	pod := &Pod{ObjectMeta: metav1.ObjectMeta{UID: "d"}, Operand: mpsDaemon, Phase: corev1.PodPending}
	v := &reconciliation{Simulator: &Simulator{options: Options{Scale: 0.001}, logs: newPodLogs("", nil)}, pods: []*Pod{pod}, memory: newMemory("n")}
	v.memory.agents["d"] = daemon
	later := func() {
		time.Sleep(v.again.after + time.Millisecond)
		v.again = wakeUp{}
	}
	if v.mpsServed(plugin) || v.again.after < 20*time.Millisecond {
		t.Error("a daemon that does not run yet is found, or not looked for again")
	}
	pod.Phase = corev1.PodRunning
	later()
	if v.mpsServed(plugin) {
		t.Error("a daemon of another resource will do")
	}
	daemon.serves = []string{"nvidia.com/gpu"}
	if v.mpsServed(plugin) {
		t.Error("it is looked for before the time")
	}
	later()
	if !v.mpsServed(plugin) {
		t.Error("it is not found")
	}
	v.pods = nil
	if !v.mpsServed(plugin) {
		t.Error("what is registered goes with the daemon")
	}
	plain := &agent{config: &rules.Config{}, offers: plugin.offers}
	if !v.mpsServed(plain) {
		t.Error("without MPS a daemon is waited for")
	}
}
