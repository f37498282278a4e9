// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"lab.invalid/sim/driverpod"
	"lab.invalid/sim/rules"
)

// licenseFixture is a vGPU node with a driver pod; the API server has a Secret with these keys, or none.
type licenseFixture struct {
	r       *reconciliation
	pod     *Pod
	secret  map[string]string
	events  []string
	execs   []string
	license *rules.License
}

func driverPod(keys ...string) *corev1.Pod {
	main := corev1.Container{Name: driver, Image: "nvcr.io/nvidia/driver:580.95.05-ubuntu24.04"}
	volume := corev1.Volume{Name: "licensing-config", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "licensing"}}}
	for _, key := range keys {
		volume.Secret.Items = append(volume.Secret.Items, corev1.KeyToPath{Key: key, Path: key})
		folder := map[string]string{"gridd.conf": "/drivers/"}[key]
		if folder == "" {
			folder = "/drivers/ClientConfigToken/"
		}
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: "licensing-config", MountPath: folder + key, SubPath: key, ReadOnly: true})
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "driver", Namespace: namespace, UID: "u1"}, Spec: corev1.PodSpec{Containers: []corev1.Container{main}, Volumes: []corev1.Volume{volume}}}
}

func newLicenseFixture(t *testing.T, keys ...string) *licenseFixture {
	t.Helper()
	f := &licenseFixture{secret: map[string]string{"gridd.conf": "", "client_configuration_token.tok": licenseToken("one")}}
	server := httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(server.Close)
	objects, err := dynamic.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, driverpod.EventsFolder), 0o700); err != nil {
		t.Fatal(err)
	}
	s := &Simulator{options: Options{Scale: 1e-6}, core: clientOf(t, f.serve), logs: newPodLogs("", nil), driverPods: &driverPods{dir: dir, client: objects}}
	node := &Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n"}, Faults: rules.Faults{}, Ready: true,
		Hardware: &rules.Hardware{Product: "NVIDIA A100", GPUs: 1, Driver: "580.95.05", VGPU: &rules.VGPU{Profile: "A100-10C"}}}
	f.r = &reconciliation{Simulator: s, ctx: context.Background(), node: node, memory: newMemory("n")}
	trimmed, err := trimPod(driverPod(keys...))
	if err != nil {
		t.Fatal(err)
	}
	f.pod = trimmed.(*Pod)
	f.r.pods = []*Pod{f.pod}
	return f
}

func licenseToken(id string) string {
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	return part(`{"alg": "RS256"}`) + "." + part(fmt.Sprintf(`{"jti": %q, "service_instance_configuration": {"node_url_list": [{"url": "dls.example.com"}]}}`, id)) + ".c2ln"
}

func (f *licenseFixture) serve(answer http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	answer.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(request.URL.Path, "/secrets/licensing"):
		if f.secret == nil {
			answer.WriteHeader(http.StatusNotFound)
			fmt.Fprint(answer, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": "secrets \"licensing\" not found"}`)
			return
		}
		data := map[string][]byte{}
		for key, value := range f.secret {
			data[key] = []byte(value)
		}
		text, _ := json.Marshal(map[string]any{"kind": "Secret", "apiVersion": "v1", "data": data})
		_, _ = answer.Write(text)
		return
	case strings.HasSuffix(request.URL.Path, "/events"):
		var event corev1.Event
		_ = json.Unmarshal(body, &event)
		f.events = append(f.events, event.Reason+" "+event.Message)
	case strings.Contains(request.URL.Path, "/execs"):
		f.execs = append(f.execs, request.Method)
		fmt.Fprint(answer, `{"kind": "Exec", "apiVersion": "kwok.x-k8s.io/v1alpha1", "metadata": {"name": "driver"}}`)
		return
	case strings.Contains(string(body), rules.LicenseAnnotation):
		var patch struct {
			Metadata struct {
				Annotations map[string]*string `json:"annotations"`
			} `json:"metadata"`
		}
		_ = json.Unmarshal(body, &patch)
		f.license = nil
		if text := patch.Metadata.Annotations[rules.LicenseAnnotation]; text != nil {
			f.license = rules.ParseLicense(*text)
		}
	case strings.Contains(string(body), stateAnnotation):
		f.pod.State, f.pod.Phase = "580.95.05", corev1.PodRunning
	}
	fmt.Fprint(answer, `{"kind": "Node", "apiVersion": "v1"}`)
}

// reconcile reconciles the driver pod until it has started, or for a while.
func (f *licenseFixture) reconcile(t *testing.T) {
	t.Helper()
	for range 20 {
		if err := f.r.reconcileDriver(f.pod); err != nil {
			t.Fatal(err)
		}
		if f.pod.State != "" {
			break
		}
		time.Sleep(100 * time.Microsecond)
	}
	if err := f.r.endLicense(); err != nil {
		t.Fatal(err)
	}
}

func TestALicensedDriverPod(t *testing.T) {
	f := newLicenseFixture(t, "gridd.conf", "client_configuration_token.tok")
	f.reconcile(t)
	if f.license == nil || f.license.Status != rules.Licensed || f.license.Server != "dls.example.com" || strings.Join(f.execs, " ") != "POST" {
		t.Fatalf("%+v %v", f.license, f.execs)
	}
	folder := f.r.driverPods.folder(f.pod)
	first := f.license.TokenSHA256
	// A new token has no effect before the daemon is started again.
	f.secret["client_configuration_token.tok"] = licenseToken("two")
	if err := os.WriteFile(folder.File(driverpod.TokenPath), []byte(licenseToken("two")), 0o600); err != nil {
		t.Fatal(err)
	}
	f.reconcile(t)
	if f.license.TokenSHA256 != first {
		t.Error("the running daemon has another token")
	}
	daemon, err := folder.Daemon()
	if err != nil {
		t.Fatal(err)
	}
	if err := folder.StopDaemon(daemon, time.Now(), 0); err != nil {
		t.Fatal(err)
	}
	f.reconcile(t)
	if f.license.Status == rules.Licensed || f.license.Reason != "nvidia-gridd is not running" {
		t.Errorf("%+v", f.license)
	}
	if err := folder.StartDaemon(); err != nil {
		t.Fatal(err)
	}
	f.reconcile(t)
	if f.license.Status != rules.Licensed || f.license.TokenSHA256 == first {
		t.Errorf("%+v", f.license)
	}
	f.r.pods = nil
	f.reconcile(t)
	if err := f.r.endLicense(); err != nil || f.license != nil {
		t.Errorf("%v: the license remains after the pod: %+v", err, f.license)
	}
}

func TestLicenseVolumes(t *testing.T) {
	for _, test := range []struct {
		name   string
		keys   []string
		change func(f *licenseFixture)
		event  string
		reason string
	}{
		{"no token is mounted", []string{"gridd.conf"}, nil, "", "there is no client configuration token in /etc/nvidia/ClientConfigToken"},
		{"no license is configured", nil, nil, "", "/etc/nvidia/gridd.conf does not exist"},
		{"no Secret", []string{"gridd.conf"}, func(f *licenseFixture) { f.secret = nil },
			`FailedMount MountVolume.SetUp failed for volume "licensing-config" : secrets "licensing" not found`, "-"},
		{"another key", []string{"gridd.conf", "client_configuration_token.tok"}, func(f *licenseFixture) { f.secret = map[string]string{"gridd.conf": "", "token": "x"} },
			`FailedMount MountVolume.SetUp failed for volume "licensing-config" : references non-existent secret key: client_configuration_token.tok`, "-"},
		{"no vGPU", []string{"gridd.conf"}, func(f *licenseFixture) { f.r.node.Hardware.VGPU = nil }, "", ""},
	} {
		f := newLicenseFixture(t, test.keys...)
		if test.change != nil {
			test.change(f)
		}
		f.reconcile(t)
		if strings.Join(f.events, "|") != test.event {
			t.Errorf("%s: events %q", test.name, f.events)
		}
		if (f.pod.State == "") != (test.reason == "-") {
			t.Errorf("%s: state %q", test.name, f.pod.State)
		}
		if f.r.node.Hardware.VGPU == nil {
			if content, err := f.r.driverPods.folder(f.pod).Read(driverpod.ConfigPath); content != nil || err != nil {
				t.Errorf("%s: %q %v", test.name, content, err)
			}
		}
		reason := ""
		if f.license != nil {
			reason = f.license.Reason
		}
		if test.reason != "-" && reason != test.reason {
			t.Errorf("%s: %q", test.name, reason)
		}
	}
}

func TestChangedContainers(t *testing.T) {
	f := newLicenseFixture(t)
	f.reconcile(t)
	folder := f.r.driverPods.folder(f.pod)
	if err := folder.Announce(); err != nil {
		t.Fatal(err)
	}
	if changed := f.r.driverPods.changes(); len(changed) != 1 || changed[0] != namespace+"/driver" || f.r.driverPods.changes() != nil {
		t.Errorf("%v", changed)
	}
	f.r.driverPods.sweep([]any{f.pod})
	if _, err := folder.State(); err != nil {
		t.Error("the container of a living pod was deleted")
	}
	f.r.driverPods.sweep(nil)
	if _, err := os.Stat(string(folder)); !os.IsNotExist(err) {
		t.Error("the container of a deleted pod remains")
	}
}
