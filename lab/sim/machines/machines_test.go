// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package machines

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lab.invalid/sim/autoscaler"
	"lab.invalid/sim/machineapi"
)

func machineOf(name string, age time.Duration, change func(*machineapi.Machine)) *machineapi.Machine {
	machine := &machineapi.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-age))}}
	machine.Status.NodeRef = &corev1.ObjectReference{Name: name}
	if change != nil {
		change(machine)
	}
	return machine
}

func TestDeletePolicy(t *testing.T) {
	marked := func(m *machineapi.Machine) { m.Annotations = map[string]string{autoscaler.DeleteAnnotation: "yes"} }
	broken := func(m *machineapi.Machine) { m.Status.ErrorMessage = "no quota" }
	starting := func(m *machineapi.Machine) { m.Status.NodeRef = nil }
	for _, test := range []struct {
		policy   string
		machines []*machineapi.Machine
		want     string
	}{
		{"", []*machineapi.Machine{machineOf("a", time.Hour, nil), machineOf("b", time.Hour, starting)}, "b"},
		{"Random", []*machineapi.Machine{machineOf("a", time.Hour, starting), machineOf("b", time.Hour, broken)}, "b"},
		{"Oldest", []*machineapi.Machine{machineOf("a", time.Minute, nil), machineOf("b", time.Hour, nil)}, "b"},
		{"Newest", []*machineapi.Machine{machineOf("a", time.Minute, nil), machineOf("b", time.Hour, nil)}, "a"},
		{"Newest", []*machineapi.Machine{machineOf("a", time.Minute, nil), machineOf("b", time.Hour, marked)}, "b"},
		{"Oldest", []*machineapi.Machine{machineOf("a", time.Minute, marked), machineOf("b", time.Hour, nil)}, "a"},
	} {
		if found := toDelete(test.machines, 1, test.policy, time.Now()); len(found) != 1 || found[0].Name != test.want {
			t.Errorf("%s: %v, want %s", test.policy, found[0].Name, test.want)
		}
	}
	if found := toDelete([]*machineapi.Machine{machineOf("a", 0, nil)}, 3, "", time.Now()); len(found) != 1 {
		t.Errorf("%d machines", len(found))
	}
}

func TestInstances(t *testing.T) {
	types := map[string]Type{"g4dn.xlarge": {CPUs: 4}, "n1-standard-4+nvidia-tesla-t4x1": {CPUs: 4, GPUs: 1}, "Standard_D4s_v5": {CPUs: 4}}
	for _, test := range []struct {
		platform string
		provider map[string]any
		name     string
		zone     string
		fails    bool
	}{
		{"AWS", object{"instanceType": "g4dn.xlarge", "placement": object{"availabilityZone": "us-east-2a", "region": "us-east-2"}}, "g4dn.xlarge", "us-east-2a", false},
		{"AWS", object{"instanceType": "g99.xlarge"}, "", "", true},
		{"AWS", nil, "", "", true},
		{"Azure", object{"vmSize": "Standard_D4s_v5", "zone": "2", "location": "eastus"}, "Standard_D4s_v5", "eastus-2", false},
		{"GCP", object{"machineType": "n1-standard-4", "zone": "us-central1-a", "gpus": []any{object{"count": int64(1), "type": "nvidia-tesla-t4"}}}, "n1-standard-4+nvidia-tesla-t4x1", "us-central1-a", false},
		{"GCP", object{"machineType": "n1-standard-4", "zone": "us-central1-a"}, "", "", true},
		{"VSphere", object{"template": "rhcos"}, "", "", true},
	} {
		cloud := &Cloud{Platform: test.platform, Types: types}
		found, err := cloud.instance(test.provider)
		if (err != nil) != test.fails || (err == nil && (found.name != test.name || found.zone != test.zone)) {
			t.Errorf("%s %v: %s in %s, %v", test.platform, test.provider, found.name, found.zone, err)
		}
	}
}

func TestConditionsKeepTheirTransitionTime(t *testing.T) {
	before := setCondition(nil, "Drained", "False", "DrainError", "one")
	before[0].LastTransitionTime = metav1.NewTime(time.Unix(1000, 0))
	same := setCondition(before, "Drained", "False", "DrainError", "two")
	if same[0].LastTransitionTime != before[0].LastTransitionTime || same[0].Message != "two" {
		t.Errorf("%+v", same)
	}
	if changed := setCondition(before, "Drained", "True", "", ""); changed[0].LastTransitionTime == before[0].LastTransitionTime || changed[0].Severity != "" {
		t.Errorf("%+v", changed)
	}
}

const savedMachines = `[
 {"name": "m1", "pool": "/DC1/host/a/Resources/gpu", "running": true, "config": {"uuid": "421A", "hardware": {"numCPU": 6, "memoryMB": 2048, "device": [
  {"key": 1}, {"backing": {"vgpu": "grid_a100-10c"}}, {"backing": {"vgpu": "grid_a100-10c"}}]},
  "extraConfig": [{"key": "guestinfo.hostname", "value": {"_typeName": "string", "_value": "worker-1"}}]}},
 {"name": "m2", "pool": "/DC1/host/ab/Resources", "running": true, "config": {"uuid": "421B", "hardware": {"numCPU": 4, "memoryMB": 1024},
  "extraConfig": [{"key": "guestinfo.hostname", "value": "worker-2"}]}},
 {"name": "m3", "running": true, "config": {"hardware": {"device": [{"backing": {"vgpu": "unknown-1c"}}]}}}]`

func TestVirtualMachines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "machines.json")
	center := newVCenter(path)
	if all, err := center.read(); err != nil || len(all) != 0 {
		t.Error(all, err)
	}
	if err := os.WriteFile(path, []byte(savedMachines), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := center.read()
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	cloud := &Cloud{Types: map[string]Type{"": {}, "grid_a100-10cx2": {GPUs: 2}}, Zones: map[string]string{"zone-a": "/DC1/host/a/Resources"}}
	for number, want := range []struct {
		host, id, zone string
		gpus, cpus     int64
	}{{"worker-1", "vsphere://421a", "zone-a", 2, 6}, {"worker-2", "vsphere://421b", "", 0, 4}} {
		found, err := cloud.instanceOf(&all[number])
		if err != nil || all[number].hostname() != want.host || all[number].providerID() != want.id || found.zone != want.zone || found.GPUs != want.gpus || found.CPUs != want.cpus {
			t.Errorf("%+v, %v", found, err)
		}
	}
	if _, err := cloud.instanceOf(&all[2]); err == nil || all[2].hostname() != "" {
		t.Error("an unknown profile has a node")
	}
}
