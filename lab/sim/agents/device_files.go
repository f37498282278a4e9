// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lab.invalid/sim/rules"
)

// opensAnnotation marks a pod whose processes open device files of GPUs: "all", or the numbers of the GPUs. They succeed only
// if the runtime gives the pod's containers access.
const opensAnnotation = labAnnotations + "opens"

// nvidiaHandlers are the handlers of the runtime classes that NVIDIA's container toolkit configures.
var nvidiaHandlers = []string{"nvidia", "nvidia-cdi", "nvidia-legacy"}

// access describes how the containers of a pod get access to device files of GPUs without the device plugin.
type access struct {
	privileged   bool
	cdi          bool
	runtimeClass string
}

// accessOf reads a pod's spec. A device file that is only mounted, such as /dev/nvidia0 or /dev, cannot be opened: the device
// cgroup of an unprivileged container denies it.
func accessOf(p *corev1.Pod) access {
	var a access
	for key, value := range p.Annotations {
		if strings.HasPrefix(key, "cdi.k8s.io/") || strings.HasPrefix(key, "nvidia.cdi.k8s.io/") {
			a.cdi = a.cdi || strings.Contains(value, "nvidia.com/gpu=")
		}
	}
	visible := true
	for _, c := range append(slices.Clone(p.Spec.InitContainers), p.Spec.Containers...) {
		if s := c.SecurityContext; s != nil && s.Privileged != nil && *s.Privileged {
			a.privileged = true
		}
		for _, e := range c.Env {
			if e.Name == "NVIDIA_VISIBLE_DEVICES" && slices.Contains([]string{"", "void", "none"}, e.Value) && e.ValueFrom == nil {
				visible = false
			}
		}
	}
	if p.Spec.RuntimeClassName != nil && visible {
		a.runtimeClass = *p.Spec.RuntimeClassName
	}
	return a
}

// addOpenedDevices adds the GPUs whose device files are held by processes of running pods without the device plugin.
func (r *reconciliation) addOpenedDevices(use *rules.Usage) error {
	for _, pod := range r.pods {
		if pod.Opens == "" || pod.Phase != corev1.PodRunning {
			continue
		}
		allowed, err := r.canOpenDevices(pod.Access)
		if err != nil {
			return err
		}
		if !allowed {
			continue
		}
		if pod.Opens == "all" {
			use.All = true
			continue
		}
		for _, number := range strings.Split(pod.Opens, ",") {
			if gpu, err := strconv.Atoi(strings.TrimSpace(number)); err == nil {
				use.GPUs[gpu] = true
			}
		}
	}
	return nil
}

// canOpenDevices returns whether the runtime gives containers with this access the device files.
func (r *reconciliation) canOpenDevices(a access) (bool, error) {
	if a.privileged || a.cdi || a.runtimeClass == "" {
		return a.privileged || a.cdi, nil
	}
	class, err := r.core.NodeV1().RuntimeClasses().Get(r.ctx, a.runtimeClass, metav1.GetOptions{})
	if err != nil {
		return false, ignoreGone(err)
	}
	return slices.Contains(nvidiaHandlers, class.Handler), nil
}
