// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lab.invalid/sim/rules"
)

const (
	driverManager09 = "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.9.1"
	driverManager12 = "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0"
)

// driverFixture is a node with a loaded driver, a pod that holds its GPU, and a new driver pod; the API server allows
// evictions or not.
type driverFixture struct {
	r        *reconciliation
	pod      *Pod
	denied   bool
	requests []string
}

func newDriverFixture(t *testing.T, image string) *driverFixture {
	f := &driverFixture{}
	s := &Simulator{options: Options{Scale: 1e-5}, core: clientOf(t, f.serve), logs: newPodLogs("", nil)}
	node := &Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n"}, Faults: rules.Faults{}, Ready: true, Driver: "580.95.05", DriverConfig: "first",
		Deploy:   map[string]string{pluginLabel: "true", rules.ClientLabel: "true"},
		Hardware: &rules.Hardware{Product: "Tesla T4", GPUs: 1, Driver: "580.95.05"}}
	f.r = &reconciliation{Simulator: s, ctx: context.Background(), node: node, memory: newMemory("n")}
	f.pod = &Pod{ObjectMeta: metav1.ObjectMeta{Name: "driver", Namespace: namespace, UID: "driver"}, Operand: driver, Env: map[string]string{driverConfigDigest: "second"},
		Inits: []container{{Name: driverManager, Image: image}}}
	user := &Pod{ObjectMeta: metav1.ObjectMeta{Name: "user", Namespace: "default", UID: "user"}, Phase: corev1.PodRunning, GPURequest: true,
		Owner: metav1.OwnerReference{Kind: "ReplicaSet"}, Devices: fmt.Sprintf(`{"main": {"nvidia.com/gpu": [%q]}}`, rules.UUID("n1", 0))}
	f.r.pods = []*Pod{f.pod, user}
	return f
}

// user returns the pod that holds the GPU.
func (f *driverFixture) user() *Pod {
	return f.r.pods[slices.IndexFunc(f.r.pods, func(pod *Pod) bool { return pod.UID == "user" })]
}

// serve records what the simulator changes, applies it to the node, and deletes the evicted pod.
func (f *driverFixture) serve(answer http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	answer.Header().Set("Content-Type", "application/json")
	text := string(body)
	switch {
	case strings.HasSuffix(request.URL.Path, "/eviction"):
		f.requests = append(f.requests, "evict")
		if f.denied {
			answer.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(answer, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "TooManyRequests", "code": 429}`)
			return
		}
		f.r.pods = slices.DeleteFunc(slices.Clone(f.r.pods), func(pod *Pod) bool { return pod.UID == "user" })
	case strings.Contains(text, `"unschedulable"`):
		f.r.node.Cordoned = strings.Contains(text, "true")
		f.requests = append(f.requests, map[bool]string{true: "cordon", false: "uncordon"}[f.r.node.Cordoned])
	case strings.Contains(text, "paused-for-driver-upgrade"):
		f.requests = append(f.requests, "pause")
		for key := range f.r.node.Deploy {
			if strings.Contains(text, key) {
				f.r.node.Deploy[key] = "paused-for-driver-upgrade"
			}
		}
	case strings.Contains(text, pluginLabel):
		f.requests = append(f.requests, "resume")
		for key := range f.r.node.Deploy {
			f.r.node.Deploy[key] = "true"
		}
	case strings.Contains(text, `"allocatable"`):
		f.requests = append(f.requests, "status")
	case strings.Contains(text, "CrashLoopBackOff"):
		f.requests = append(f.requests, "fail")
	}
	fmt.Fprint(answer, `{"kind": "Node", "apiVersion": "v1"}`)
}

// unload reconciles until the driver manager has ended or failed once, or nothing changes for a while.
func (f *driverFixture) unload(t *testing.T) unloadOutcome {
	for range 50 {
		f.r.again = wakeUp{}
		outcome, err := f.r.unload(f.pod)
		if err != nil {
			t.Fatal(err)
		}
		if outcome != notUnloaded || slices.Contains(f.requests, "fail") {
			return outcome
		}
		time.Sleep(max(f.r.again.after, 10*time.Microsecond))
	}
	return notUnloaded
}

func TestADriverInUse(t *testing.T) {
	for _, test := range []struct {
		name     string
		image    string
		change   func(f *driverFixture)
		outcome  unloadOutcome
		requests string
	}{
		{"auto-upgrade on: no eviction, and the unload fails", driverManager09, func(f *driverFixture) { f.r.node.AutoUpgrade = true }, notUnloaded, "pause resume fail"},
		{"auto-upgrade off: cordon and evict", driverManager09, nil, unloaded, "pause cordon evict uncordon"},
		{"eviction switched off", driverManager09, func(f *driverFixture) { f.pod.Env["ENABLE_GPU_POD_EVICTION"] = "false" }, notUnloaded, "pause resume fail"},
		{"a pod without a controller", driverManager09, func(f *driverFixture) { f.user().Owner.Kind = "" }, notUnloaded, "pause cordon uncordon resume fail"},
		{"a pod without a controller, by force", driverManager09, func(f *driverFixture) { f.user().Owner.Kind, f.pod.Env["DRAIN_USE_FORCE"] = "", "true" }, unloaded,
			"pause cordon evict uncordon"},
		{"a pod with local data", driverManager09, func(f *driverFixture) { f.user().EmptyDir = true }, notUnloaded, "pause cordon uncordon resume fail"},
		{"a DaemonSet of a user", driverManager09, func(f *driverFixture) { f.user().Owner.Kind = "DaemonSet" }, notUnloaded, "pause cordon uncordon resume fail"},
		{"an unused GPU", driverManager09, func(f *driverFixture) { f.r.pods, f.r.node.AutoUpgrade = f.r.pods[:1], true }, unloaded, "pause"},
		{"no driver is loaded", driverManager09, func(f *driverFixture) { f.r.node.Driver = "" }, unloaded, ""},
		{"an equal configuration before v0.10", driverManager09, func(f *driverFixture) { f.pod.Env[driverConfigDigest], f.r.node.AutoUpgrade = "first", true }, notUnloaded,
			"pause resume fail"},
		{"an equal configuration", driverManager12, func(f *driverFixture) { f.pod.Env[driverConfigDigest], f.r.node.AutoUpgrade = "first", true }, kept, "pause"},
		{"an equal configuration, auto-upgrade off", driverManager12, func(f *driverFixture) { f.pod.Env[driverConfigDigest] = "first" }, kept, "pause"},
		{"a reinstallation by force", driverManager12, func(f *driverFixture) { f.pod.Env[driverConfigDigest], f.pod.Env["FORCE_REINSTALL"] = "first", "true" }, unloaded,
			"pause cordon evict uncordon"},
		{"another configuration", driverManager12, nil, unloaded, "pause cordon evict uncordon"},
		{"no digest in the pod", driverManager12, func(f *driverFixture) { delete(f.pod.Env, driverConfigDigest) }, unloaded, "pause cordon evict uncordon"},
	} {
		f := newDriverFixture(t, test.image)
		if test.change != nil {
			test.change(f)
		}
		outcome := f.unload(t)
		if got := strings.Join(f.requests, " "); outcome != test.outcome || got != test.requests {
			t.Errorf("%s: outcome %v after %q, want %v after %q", test.name, outcome, got, test.outcome, test.requests)
		}
		if f.r.node.Cordoned {
			t.Errorf("%s: the node remains cordoned", test.name)
		}
		if client := f.r.node.Deploy[rules.ClientLabel]; test.image == driverManager09 && client != "true" {
			t.Errorf("%s: the label of GPU clients is %s", test.name, client)
		}
	}
}

func TestAnEvictionIsRepeatedUntilItIsAllowed(t *testing.T) {
	f := newDriverFixture(t, driverManager09)
	f.denied = true
	if outcome := f.unload(t); outcome != notUnloaded || !f.r.node.Cordoned || f.r.unloadFails() {
		t.Errorf("outcome %v, requests %v", outcome, f.requests)
	}
	f.denied = false
	if outcome := f.unload(t); outcome != unloaded || f.r.node.Cordoned {
		t.Errorf("outcome %v, requests %v", outcome, f.requests)
	}
}

func TestAFailedUnloadIsRepeatedWithBackOff(t *testing.T) {
	f := newDriverFixture(t, driverManager09)
	f.r.node.AutoUpgrade = true
	f.unload(t)
	if !f.r.unloadFails() {
		t.Error("the operands do not wait for the driver")
	}
	f.r.pods, f.requests = f.r.pods[:1], nil
	if outcome := f.unload(t); outcome != unloaded || f.r.unloadFails() {
		t.Errorf("outcome %v after the pod ended, requests %v", outcome, f.requests)
	}
}

func TestClientsMustEndBeforeTheDriverIsUnloaded(t *testing.T) {
	for image, want := range map[string]unloadOutcome{driverManager09: unloaded, driverManager12: notUnloaded} {
		f := newDriverFixture(t, image)
		f.r.pods = []*Pod{f.pod, {ObjectMeta: metav1.ObjectMeta{Name: "client", UID: types.UID("client")}, GPUClient: true, Phase: corev1.PodRunning}}
		if outcome := f.unload(t); outcome != want {
			t.Errorf("%s: outcome %v, want %v", image, outcome, want)
		}
	}
}
