// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestHoldersThatRequestNothing(t *testing.T) {
	yes := true
	privileged := corev1.Container{Name: "main", SecurityContext: &corev1.SecurityContext{Privileged: &yes}}
	mounted := corev1.PodSpec{Containers: []corev1.Container{{Name: "main", VolumeMounts: []corev1.VolumeMount{{Name: "dev", MountPath: "/dev"}}}},
		Volumes: []corev1.Volume{{Name: "dev", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev"}}}}}
	cdi := map[string]string{"cdi.k8s.io/work": "nvidia.com/gpu=0"}
	for _, test := range []struct {
		name        string
		spec        corev1.PodSpec
		annotations map[string]string
		opens       string
		holds       bool
	}{
		{name: "privileged", spec: corev1.PodSpec{Containers: []corev1.Container{privileged}}, opens: "all", holds: true},
		{name: "privileged, and opens nothing", spec: corev1.PodSpec{Containers: []corev1.Container{privileged}}},
		{name: "one GPU", spec: corev1.PodSpec{Containers: []corev1.Container{privileged}}, opens: "1", holds: true},
		{name: "a mount alone", spec: mounted, opens: "all"},
		{name: "CDI annotation", spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}, annotations: cdi, opens: "all", holds: true},
		{name: "another device of CDI", spec: corev1.PodSpec{}, annotations: map[string]string{"cdi.k8s.io/x": "vendor.com/nic=0"}, opens: "all"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			annotations := map[string]string{opensAnnotation: test.opens}
			for key, value := range test.annotations {
				annotations[key] = value
			}
			made, err := trimPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "work", Namespace: "users", UID: "work", Annotations: annotations},
				Spec: test.spec, Status: corev1.PodStatus{Phase: corev1.PodRunning}})
			if err != nil {
				t.Fatal(err)
			}
			f.r.pods = append(f.r.pods, made.(*Pod))
			f.setConfig("halves")
			want := "success"
			if test.holds {
				want = "failed"
			}
			if state := f.labels["nvidia.com/mig.config.state"]; state != want {
				t.Errorf("%s, not %s", state, want)
			}
		})
	}
}
