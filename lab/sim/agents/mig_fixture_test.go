// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"lab.invalid/sim/rules"
)

const (
	namespace   = "gpu-operator"
	pluginLabel = "nvidia.com/gpu.deploy.device-plugin"
	nvsmLabel   = "nvidia.com/gpu.deploy.nvsm"
	plugins     = "nvidia-device-plugin-daemonset"
)

const migFile = `
version: v1
mig-configs:
  all-disabled: [{devices: all, mig-enabled: false}]
  halves: [{devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2}}]
  whole: [{devices: all, mig-enabled: true, mig-devices: {7g.80gb: 1}}]
  too-much: [{devices: all, mig-enabled: true, mig-devices: {3g.40gb: 3}}]
`

// fixture is one node with its operands, and an API server that takes what a MIG manager sends. The operands obey their
// label, except those that stick.
type fixture struct {
	t       *testing.T
	v       *reconciliation
	manager *Pod
	labels  map[string]string
	states  []string
	deleted []string
	boots   []string
	stuck   bool
}

func newFixture(t *testing.T) *fixture {
	w := &fixture{t: t, labels: map[string]string{pluginLabel: "true", "nvidia.com/gpu.deploy.dcgm": "false"}}
	server := httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(server.Close)
	core, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	s := &Simulator{options: Options{Scale: 1e-5, MIGWait: 5 * time.Millisecond}, core: core, memories: map[string]*memory{}, histories: map[string]*rules.ConfigMapHistory{}, present: map[string]bool{},
		refreshed: map[string]time.Time{}, migConfigEvents: map[string]bool{}, logs: newPodLogs("", nil)}
	history := &rules.ConfigMapHistory{}
	history.Observe(map[string]string{rules.MIGConfigKey: migFile}, time.Now().Add(-time.Hour), 0)
	s.histories[namespace+"/parted"], s.present[namespace+"/parted"] = history, true
	geometry := &rules.Geometry{Slices: 8, Profiles: []rules.Profile{
		{Name: "3g.40gb", Compute: 3, Size: 4, Starts: []int{0, 4}, Most: 2}, {Name: "7g.80gb", Compute: 7, Size: 8, Starts: []int{0}, Most: 1}}}
	node := &Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n"}, Faults: rules.Faults{}, Ready: true,
		Hardware: &rules.Hardware{Product: "NVIDIA A100", GPUs: 2, Compute: "8.0", PCI: "20b2", MIGCapable: true, MIG: geometry}}
	w.v = &reconciliation{Simulator: s, ctx: context.Background(), node: node, memory: newMemory("n")}
	w.start("first")
	for _, app := range []string{plugins, "nvidia-cuda-validator", validator} {
		w.v.pods = append(w.v.pods, &Pod{ObjectMeta: metav1.ObjectMeta{Name: app, Namespace: namespace, UID: types.UID(app)}, App: app, Phase: corev1.PodRunning})
	}
	w.syncNode()
	return w
}

// start replaces the MIG manager's pod, and with it the process.
func (w *fixture) start(uid string) {
	w.v.pods = slices.DeleteFunc(w.v.pods, func(pod *Pod) bool { return pod == w.manager })
	w.manager = &Pod{ObjectMeta: metav1.ObjectMeta{Name: "m-" + uid, Namespace: namespace, UID: types.UID(uid)}, App: "nvidia-mig-manager", Operand: migManager,
		Phase: corev1.PodRunning, ConfigMap: namespace + "/parted", Env: map[string]string{}}
	w.v.pods = append(w.v.pods, w.manager)
}

// syncNode is what the informer would make of the labels.
func (w *fixture) syncNode() {
	w.v.node.MIGConfig, w.v.node.MIGState, w.v.node.Deploy = w.labels[rules.MIGConfigLabel], w.labels[rules.MIGStateLabel], map[string]string{}
	for _, key := range rules.DeployLabels {
		if value, there := w.labels[key]; there {
			w.v.node.Deploy[key] = value
		}
	}
}

// setConfig sets the label, and waits until the MIG manager has nothing to do.
func (w *fixture) setConfig(config string) {
	w.labels[rules.MIGConfigLabel] = config
	if config != "" {
		w.v.addMIGConfigEvent("n1")
	}
	w.settle()
}

func (w *fixture) settle() {
	w.t.Helper()
	for range 2000 {
		w.syncNode()
		w.v.again = wakeUp{}
		down, err := w.v.down()
		if err == nil && !down {
			err = w.v.reconcileMIG(w.manager)
		}
		if err != nil {
			w.t.Fatal(err)
		}
		if w.v.again.after == 0 {
			return
		}
		time.Sleep(w.v.again.after)
	}
	w.t.Fatal("it does not come to an end")
}

func (w *fixture) serve(answer http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	answer.Header().Set("Content-Type", "application/json")
	parts := strings.Split(request.URL.Path, "/")
	name := parts[len(parts)-1]
	if request.Method == http.MethodDelete {
		w.deleted = append(w.deleted, name)
		w.v.pods = slices.DeleteFunc(slices.Clone(w.v.pods), func(pod *Pod) bool { return pod.Name == name })
		fmt.Fprint(answer, `{"kind": "Status", "apiVersion": "v1", "status": "Success"}`)
		return
	}
	var patch struct {
		Metadata struct {
			Labels      map[string]string  `json:"labels"`
			Annotations map[string]*string `json:"annotations"`
		} `json:"metadata"`
		Status struct {
			NodeInfo corev1.NodeSystemInfo `json:"nodeInfo"`
		} `json:"status"`
	}
	if err := json.Unmarshal(body, &patch); err != nil {
		w.t.Errorf("%s: %v", body, err)
	}
	if name == w.manager.Name {
		w.manager.State = ""
		if state := patch.Metadata.Annotations[stateAnnotation]; state != nil {
			w.manager.State = *state
		}
		fmt.Fprint(answer, `{"kind": "Pod", "apiVersion": "v1"}`)
		return
	}
	if id := patch.Status.NodeInfo.BootID; id != "" {
		w.boots = append(w.boots, id)
		w.v.node.BootID = id
	}
	if hung, told := patch.Metadata.Annotations[hungAnnotation]; told {
		w.v.node.HungProcess = ""
		if hung != nil {
			w.v.node.HungProcess = *hung
		}
	}
	for key, value := range patch.Metadata.Labels {
		w.labels[key] = value
		if key == rules.MIGStateLabel {
			w.states = append(w.states, value)
		}
	}
	if w.labels[pluginLabel] != "true" && !w.stuck {
		w.v.pods = slices.DeleteFunc(slices.Clone(w.v.pods), func(pod *Pod) bool { return pod.App == plugins })
	}
	fmt.Fprint(answer, `{"kind": "Node", "apiVersion": "v1"}`)
}

// check compares the states since the last time, and what the plugin's label says now.
func (w *fixture) check(what, states, plugin string) {
	w.t.Helper()
	if got := strings.Join(w.states, " "); got != states || w.labels[pluginLabel] != plugin {
		w.t.Errorf("%s: states %q, want %q; plugin %s, want %s", what, got, states, w.labels[pluginLabel], plugin)
	}
	w.states = nil
}

func (w *fixture) checkDevices(what, profile string, count int) {
	w.t.Helper()
	layout := w.v.layout()
	for _, devices := range layout.GPUs {
		for _, s := range devices {
			if s.Profile != profile {
				w.t.Errorf("%s: %v", what, layout.GPUs)
			}
		}
	}
	if layout.Count() != count {
		w.t.Errorf("%s: %v", what, layout.GPUs)
	}
}
