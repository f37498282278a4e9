// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lab.invalid/sim/rules"
)

const (
	migManager13 = "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.13.1"
	migManager14 = "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.14.0"
	migManager15 = "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.15.0"
)

func (f *fixture) setImage(image string) {
	f.manager.Mains = []container{{Name: migManager, Image: image}}
}

func TestTheConfigurationIsGeneratedFromV014(t *testing.T) {
	for _, test := range []struct {
		name, image, file string
		generated         bool
	}{
		{"v0.13", migManager13, "", false},
		{"v0.14", migManager14, "", true},
		{"v0.14 with the user's own", migManager14, "/mig-parted-config/config.yaml", false},
	} {
		f := newFixture(t)
		f.setImage(test.image)
		f.manager.Env["CONFIG_FILE"] = test.file
		f.setConfig("all-3g.40gb")
		if test.generated {
			f.check(test.name, "pending success", "true")
			f.checkDevices(test.name, "3g.40gb", 4)
		} else {
			f.check(test.name, "failed", "true")
		}
		if got := len(f.published); got != map[bool]int{true: 1}[test.generated] {
			t.Fatalf("%s: %d ConfigMaps", test.name, got)
		}
		if !test.generated {
			continue
		}
		made := f.published[0]
		if made.Name != "n1-mig-config" || made.Namespace != namespace || made.Labels["nvidia.com/node-name"] != "n1" ||
			made.Labels["app.kubernetes.io/component"] != "nvidia-mig-manager" || made.OwnerReferences[0].Name != f.manager.Name {
			t.Errorf("%s: %+v", test.name, made.ObjectMeta)
		}
		if text := made.Data[rules.MIGConfigKey]; !strings.HasPrefix(text, "# DO NOT EDIT") || !strings.Contains(text, "all-7g.80gb") {
			t.Errorf("%s: %s", test.name, text)
		}
	}
}

func TestEachProcessPublishesItsConfigurationOnce(t *testing.T) {
	f := newFixture(t)
	f.setImage(migManager15)
	f.setConfig("all-3g.40gb")
	f.setConfig("all-7g.80gb")
	if len(f.published) != 1 {
		t.Errorf("%d ConfigMaps of one process", len(f.published))
	}
	f.start("second")
	f.setImage(migManager15)
	f.settle()
	if len(f.published) != 2 {
		t.Errorf("%d ConfigMaps of two processes", len(f.published))
	}
}

func TestGPUClientsArePausedFromV015(t *testing.T) {
	for image, paused := range map[string]bool{migManager14: false, migManager15: true} {
		f := newFixture(t)
		f.setImage(image)
		f.labels[rules.ClientLabel] = "true"
		// A client that does not end.
		f.r.pods = append(f.r.pods, &Pod{ObjectMeta: metav1.ObjectMeta{Name: "client", UID: "client"}, GPUClient: true, Phase: corev1.PodRunning})
		f.setConfig("all-7g.80gb")
		if paused {
			f.check(image, "pending", "paused-for-mig-change")
		} else {
			f.check(image, "pending success", "true")
		}
		if got := f.labels[rules.ClientLabel]; (got == "paused-for-mig-change") != paused {
			t.Errorf("%s: the label is %s", image, got)
		}
	}
	f := newFixture(t)
	f.setImage(migManager15)
	f.labels[rules.ClientLabel] = "true"
	f.setConfig("all-7g.80gb")
	f.check("a client that ends", "pending success", "true")
	if got := f.labels[rules.ClientLabel]; got != "true" {
		t.Errorf("the label is %s afterwards", got)
	}
}
