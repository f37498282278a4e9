// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func decode[T any](t *testing.T, text string) *T {
	t.Helper()
	var into T
	if err := json.Unmarshal([]byte(text), &into); err != nil {
		t.Fatal(err)
	}
	return &into
}

func trimmedPod(t *testing.T, text string) *Pod {
	t.Helper()
	object, err := trimPod(decode[corev1.Pod](t, text))
	if err != nil {
		t.Fatal(err)
	}
	return object.(*Pod)
}

// pluginPod is a reduced pod of the operator's DaemonSet.
const pluginPod = `{"metadata": {"name": "p", "namespace": "gpu-operator", "uid": "u", "labels": {"app": "nvidia-device-plugin-daemonset"},
 "annotations": {"lab.accel.gpu/agent": "{}", "other": "1"},
 "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "nvidia-device-plugin-daemonset", "uid": "d", "controller": true}]},
 "spec": {"nodeName": "n1",
  "initContainers": [{"name": "toolkit-validation"}, {"name": "config-manager-init", "env": [{"name": "DEFAULT_CONFIG", "value": "x"}, {"name": "FALLBACK_STRATEGIES", "value": "named,empty"}]}],
  "containers": [{"name": "nvidia-device-plugin", "env": [{"name": "MIG_STRATEGY", "value": "single"}], "volumeMounts": [{"name": "dp", "mountPath": "/available-configs"}, {"name": "e", "mountPath": "/bin/entrypoint.sh"}]},
   {"name": "config-manager", "env": [{"name": "DEFAULT_CONFIG", "value": "y"}]}],
  "volumes": [{"name": "e", "configMap": {"name": "nvidia-device-plugin-entrypoint"}}, {"name": "dp", "configMap": {"name": "configs"}}]},
 "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [{"name": "nvidia-device-plugin", "ready": true, "restartCount": 3}]}}`

func TestTrimPluginPod(t *testing.T) {
	pod := trimmedPod(t, pluginPod)
	if pod.Operand != devicePlugin || pod.ConfigMap != "gpu-operator/configs" || pod.State != "{}" || !pod.Ready || !pod.Running() || !pod.Operator() {
		t.Errorf("%+v", pod)
	}
	if s := selection(pod); s.Default != "x" || len(s.Fallbacks) != 2 || pod.Env["MIG_STRATEGY"] != "single" {
		t.Errorf("%+v %v", s, pod.Env)
	}
	if len(pod.Mains) != 2 || pod.Mains[0].Status.RestartCount != 3 || pod.Mains[1].Name != configManager {
		t.Errorf("%+v", pod.Mains)
	}
	again, err := trimPod(pod)
	if err != nil || again != any(pod) {
		t.Error("a trimmed pod is trimmed again")
	}
}

func TestTrimMIGManagerPod(t *testing.T) {
	pod := trimmedPod(t, `{"metadata": {"name": "m", "namespace": "gpu-operator", "labels": {"app": "nvidia-mig-manager"}}, "spec": {
 "containers": [{"name": "nvidia-mig-manager", "env": [{"name": "WITH_REBOOT", "value": "true"}],
  "volumeMounts": [{"name": "e", "mountPath": "/bin/entrypoint.sh"}, {"name": "c", "mountPath": "/mig-parted-config"}, {"name": "g", "mountPath": "/gpu-clients"}]}],
 "volumes": [{"name": "e", "configMap": {"name": "entrypoint"}}, {"name": "c", "configMap": {"name": "parted"}}, {"name": "g", "configMap": {"name": "clients"}}]}}`)
	if pod.Operand != migManager || pod.ConfigMap != "gpu-operator/parted" || pod.Env["WITH_REBOOT"] != "true" || pod.App != "nvidia-mig-manager" {
		t.Errorf("%+v", pod)
	}
}

func TestTrimNodeUnderMIG(t *testing.T) {
	text := `{"metadata": {"name": "n1", "labels": {"nvidia.com/mig.config": "halves", "nvidia.com/mig.config.state": "pending", "nvidia.com/gpu.deploy.dcgm": "paused-for-mig-change"},
 "annotations": {"lab.accel.gpu/mig": "{\"gpus\": {\"0\": [\"3g.40gb@4\"]}}", "lab.accel.gpu/rebooting": "1700000000123", "lab.accel.gpu/hardware": "{\"product\": \"NVIDIA A100\", \"gpus\": 1}"}}}`
	trimmed := func() *Node {
		object, err := trimNode(decode[corev1.Node](t, text))
		if err != nil {
			t.Fatal(err)
		}
		return object.(*Node)
	}
	node := trimmed()
	if node.MIGConfig != "halves" || node.MIGState != "pending" || len(node.Deploy) != 1 || node.Layout.Count() != 1 || node.Rebooting.UnixMilli() != 1700000000123 {
		t.Errorf("%+v", node)
	}
	if node.Hardware != trimmed().Hardware {
		t.Error("identical machines do not share their hardware")
	}
}

func TestOperands(t *testing.T) {
	for _, test := range []struct{ name, pod, want string }{
		{"NFD's worker by its program", `{"spec": {"containers": [{"name": "worker", "command": ["nfd-worker"]}]}}`, nfdWorker},
		{"with a path", `{"spec": {"containers": [{"name": "x", "command": ["/usr/bin/nfd-worker"]}]}}`, nfdWorker},
		{"NFD's master", `{"spec": {"containers": [{"name": "master", "command": ["nfd-master"]}]}}`, ""},
		{"GFD", `{"spec": {"containers": [{"name": "gpu-feature-discovery"}, {"name": "config-manager"}]}}`, gfd},
		{"MPS", `{"spec": {"containers": [{"name": "mps-control-daemon-ctr"}]}}`, mpsDaemon},
		{"MIG", `{"spec": {"containers": [{"name": "nvidia-mig-manager"}]}}`, migManager},
		{"validator", `{"metadata": {"labels": {"app": "nvidia-operator-validator"}}, "spec": {"containers": [{"name": "nvidia-operator-validator"}]}}`, validator},
		{"workload", `{"spec": {"containers": [{"name": "main", "command": ["sleep", "1"]}]}}`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := trimmedPod(t, test.pod).Operand; got != test.want {
				t.Errorf("%q", got)
			}
		})
	}
}

func TestRequests(t *testing.T) {
	pod := trimmedPod(t, `{"spec": {"initContainers": [{"name": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
 "containers": [{"name": "b", "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "1"}}}, {"name": "a", "resources": {"limits": {"nvidia.com/gpu.shared": "1", "nvidia.com/gpu": "0"}}}]}}`)
	want := []string{"i", "b", "a"}
	if len(pod.Requests) != len(want) {
		t.Fatalf("%+v", pod.Requests)
	}
	for i, name := range want {
		if pod.Requests[i].Container != name {
			t.Errorf("%+v", pod.Requests)
		}
	}
	if !pod.Requests[0].Init || pod.Requests[1].Count != 2 || pod.Requests[2].Resource != "nvidia.com/gpu.shared" {
		t.Errorf("%+v", pod.Requests)
	}
}

func TestAnnotationsHash(t *testing.T) {
	base := annotationsHash(map[string]string{"a": "1"})
	if base != annotationsHash(map[string]string{"a": "1", "lab.accel.gpu/agent": "x"}) {
		t.Error("an annotation of the lab refreshes the volumes")
	}
	if base == annotationsHash(map[string]string{"a": "2"}) || base == annotationsHash(nil) {
		t.Error("a changed annotation does not change the hash")
	}
}

func TestTrimNode(t *testing.T) {
	object, err := trimNode(decode[corev1.Node](t, `{"metadata": {"name": "n1", "labels": {"nvidia.com/device-plugin.config": "four"}, "annotations": {
 "lab.accel.gpu/hardware": "{\"product\": \"NVIDIA H200\", \"gpus\": 8}", "lab.accel.gpu/faults": "gfd-stalled"}},
 "status": {"allocatable": {"cpu": "8", "nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kernelVersion": "6.8.0"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	node := object.(*Node)
	if node.Hardware.GPUs != 8 || node.Config != "four" || !node.Ready || !node.Faults.Has("gfd-stalled") || len(node.Allocatable) != 1 || node.Allocatable["nvidia.com/gpu"] != 8 {
		t.Errorf("%+v", node)
	}
	broken, err := trimNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"lab.accel.gpu/hardware": "{"}}})
	if err != nil || broken.(*Node).Hardware != nil {
		t.Error("a broken annotation must not stop the informer")
	}
}
