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

// fixture is one node with its operands, and an API server for the requests of a MIG manager. The operands follow their
// label, except with stuck.
type fixture struct {
	t       *testing.T
	r       *reconciliation
	manager *Pod
	labels  map[string]string
	states  []string
	deleted []string
	boots   []string
	stuck   bool
	// published are the ConfigMaps that the MIG manager has created or replaced.
	published []corev1.ConfigMap
}

// clientOf returns a client of an API server that answers with serve until the test ends.
func clientOf(t *testing.T, serve http.HandlerFunc) *kubernetes.Clientset {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	core, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return core
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t, labels: map[string]string{pluginLabel: "true", "nvidia.com/gpu.deploy.dcgm": "false"}}
	s := &Simulator{options: Options{Scale: 1e-5, MIGWait: 5 * time.Millisecond}, core: clientOf(t, f.serve), memories: map[string]*memory{}, histories: map[string]*rules.ConfigMapHistory{}, present: map[string]bool{},
		refreshed: map[string]time.Time{}, migConfigEvents: map[string]bool{}, logs: newPodLogs("", nil)}
	history := &rules.ConfigMapHistory{}
	history.Observe(map[string]string{rules.MIGConfigKey: migFile}, time.Now().Add(-time.Hour), 0)
	s.histories[namespace+"/parted"], s.present[namespace+"/parted"] = history, true
	geometry := &rules.Geometry{Slices: 8, Profiles: []rules.Profile{
		{Name: "3g.40gb", Compute: 3, Size: 4, Starts: []int{0, 4}, Most: 2}, {Name: "7g.80gb", Compute: 7, Size: 8, Starts: []int{0}, Most: 1}}}
	node := &Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n"}, Faults: rules.Faults{}, Ready: true,
		Hardware: &rules.Hardware{Product: "NVIDIA A100", GPUs: 2, Driver: "580.105.08", Compute: "8.0", PCI: "20b2", MIGCapable: true, MIG: geometry}}
	f.r = &reconciliation{Simulator: s, ctx: context.Background(), node: node, memory: newMemory("n")}
	f.start("first")
	for _, app := range []string{plugins, "nvidia-cuda-validator", validator} {
		f.r.pods = append(f.r.pods, &Pod{ObjectMeta: metav1.ObjectMeta{Name: app, Namespace: namespace, UID: types.UID(app)}, App: app, Phase: corev1.PodRunning})
	}
	f.syncNode()
	return f
}

// start replaces the MIG manager's pod and its process.
func (f *fixture) start(uid string) {
	f.r.pods = slices.DeleteFunc(f.r.pods, func(pod *Pod) bool { return pod == f.manager })
	f.manager = &Pod{ObjectMeta: metav1.ObjectMeta{Name: "m-" + uid, Namespace: namespace, UID: types.UID(uid)}, App: "nvidia-mig-manager", Operand: migManager,
		Phase: corev1.PodRunning, ConfigMap: namespace + "/parted", Env: map[string]string{}}
	f.r.pods = append(f.r.pods, f.manager)
}

// syncNode updates the node from the labels, like the informer.
func (f *fixture) syncNode() {
	f.r.node.MIGConfig, f.r.node.MIGState, f.r.node.Deploy = f.labels[rules.MIGConfigLabel], f.labels[rules.MIGStateLabel], map[string]string{}
	for _, key := range append(slices.Clone(rules.DeployLabels), rules.ClientLabel) {
		if value, there := f.labels[key]; there {
			f.r.node.Deploy[key] = value
		}
	}
}

// setConfig sets the label, and waits until the MIG manager is idle.
func (f *fixture) setConfig(config string) {
	f.labels[rules.MIGConfigLabel] = config
	if config != "" {
		f.r.addMIGConfigEvent("n1")
	}
	f.settle()
}

func (f *fixture) settle() {
	f.t.Helper()
	for range 2000 {
		f.syncNode()
		f.r.again = wakeUp{}
		down, err := f.r.down()
		if err == nil && !down {
			err = f.r.reconcileMIG(f.manager)
		}
		if err != nil {
			f.t.Fatal(err)
		}
		if f.r.again.after == 0 {
			return
		}
		time.Sleep(f.r.again.after)
	}
	f.t.Fatal("the MIG manager does not become idle")
}

func (f *fixture) serve(answer http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	answer.Header().Set("Content-Type", "application/json")
	parts := strings.Split(request.URL.Path, "/")
	name := parts[len(parts)-1]
	if request.Method == http.MethodDelete {
		f.deleted = append(f.deleted, name)
		f.r.pods = slices.DeleteFunc(slices.Clone(f.r.pods), func(pod *Pod) bool { return pod.Name == name })
		fmt.Fprint(answer, `{"kind": "Status", "apiVersion": "v1", "status": "Success"}`)
		return
	}
	if strings.Contains(request.URL.Path, "/configmaps") {
		var published corev1.ConfigMap
		if err := json.Unmarshal(body, &published); err != nil {
			f.t.Errorf("%s: %v", body, err)
		}
		if request.Method == http.MethodPost && len(f.published) > 0 {
			answer.WriteHeader(http.StatusConflict)
			fmt.Fprint(answer, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "AlreadyExists", "code": 409}`)
			return
		}
		f.published = append(f.published, published)
		fmt.Fprint(answer, `{"kind": "ConfigMap", "apiVersion": "v1"}`)
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
		f.t.Errorf("%s: %v", body, err)
	}
	if name == f.manager.Name {
		f.manager.State = ""
		if state := patch.Metadata.Annotations[stateAnnotation]; state != nil {
			f.manager.State = *state
		}
		fmt.Fprint(answer, `{"kind": "Pod", "apiVersion": "v1"}`)
		return
	}
	if id := patch.Status.NodeInfo.BootID; id != "" {
		f.boots = append(f.boots, id)
		f.r.node.BootID = id
	}
	if hung, found := patch.Metadata.Annotations[hungAnnotation]; found {
		f.r.node.HungProcess = ""
		if hung != nil {
			f.r.node.HungProcess = *hung
		}
	}
	for key, value := range patch.Metadata.Labels {
		f.labels[key] = value
		if key == rules.MIGStateLabel {
			f.states = append(f.states, value)
		}
	}
	if f.labels[pluginLabel] != "true" && !f.stuck {
		f.r.pods = slices.DeleteFunc(slices.Clone(f.r.pods), func(pod *Pod) bool { return pod.App == plugins })
	}
	fmt.Fprint(answer, `{"kind": "Node", "apiVersion": "v1"}`)
}

// check compares the states since the last check, and the plugin's current label.
func (f *fixture) check(what, states, plugin string) {
	f.t.Helper()
	if got := strings.Join(f.states, " "); got != states || f.labels[pluginLabel] != plugin {
		f.t.Errorf("%s: states %q, want %q; plugin %s, want %s", what, got, states, f.labels[pluginLabel], plugin)
	}
	f.states = nil
}

func (f *fixture) checkDevices(what, profile string, count int) {
	f.t.Helper()
	layout := f.r.layout()
	for _, devices := range layout.GPUs {
		for _, s := range devices {
			if s.Profile != profile {
				f.t.Errorf("%s: %v", what, layout.GPUs)
			}
		}
	}
	if layout.Count() != count {
		f.t.Errorf("%s: %v", what, layout.GPUs)
	}
}
