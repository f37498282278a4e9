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

func TestThePluginChecksForItsDaemonPeriodically(t *testing.T) {
	config, err := rules.PluginConfig("sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}", rules.Environment{MPSRoot: "/mps"})
	if err != nil {
		t.Fatal(err)
	}
	plugin := &agent{config: config, offers: map[string][]string{"nvidia.com/gpu": {"a::0", "a::1"}}}
	daemon := &agent{config: config, serves: []string{"nvidia.com/gpu.shared"}}
	pod := &Pod{ObjectMeta: metav1.ObjectMeta{UID: "d"}, Operand: mpsDaemon, Phase: corev1.PodPending}
	r := &reconciliation{Simulator: &Simulator{options: Options{Scale: 0.001}, logs: newPodLogs("", nil)}, pods: []*Pod{pod}, memory: newMemory("n")}
	r.memory.agents["d"] = daemon
	later := func() {
		time.Sleep(r.again.after + time.Millisecond)
		r.again = wakeUp{}
	}
	if r.mpsServed(plugin) || r.again.after < 20*time.Millisecond {
		t.Error("a daemon that is not running is found, or not checked again")
	}
	pod.Phase = corev1.PodRunning
	later()
	if r.mpsServed(plugin) {
		t.Error("a daemon for another resource is accepted")
	}
	daemon.serves = []string{"nvidia.com/gpu"}
	if r.mpsServed(plugin) {
		t.Error("it is checked too early")
	}
	later()
	if !r.mpsServed(plugin) {
		t.Error("it is not found")
	}
	r.pods = nil
	if !r.mpsServed(plugin) {
		t.Error("registered resources disappear with the daemon")
	}
	plain := &agent{config: &rules.Config{}, offers: plugin.offers}
	if !r.mpsServed(plain) {
		t.Error("the plugin waits for a daemon without MPS")
	}
}
