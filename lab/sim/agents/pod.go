// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Package agents simulates NVIDIA's agents and the kubelet of simulated nodes through the Kubernetes API.
package agents

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lab.invalid/sim/rules"
)

const (
	labAnnotations = "lab.accel.gpu/"
	// stateAnnotation marks an agent's pod as started and stores its loaded configuration across restarts of the simulator.
	stateAnnotation = labAnnotations + "agent"
	// holdAnnotation prevents kwok from starting a pod; its value is the fault.
	holdAnnotation = labAnnotations + "hold"
	configLabel    = "nvidia.com/device-plugin.config"
	extended       = "nvidia.com/"
)

// The operands that the simulator handles, by container or program name.
const (
	nfdWorker    = "nfd-worker"
	devicePlugin = "nvidia-device-plugin"
	gfd          = "gpu-feature-discovery"
	mpsDaemon    = "mps-control-daemon-ctr"
	migManager   = "nvidia-mig-manager"
	validator    = "nvidia-operator-validator"
	driver       = "nvidia-driver-ctr"
	toolkit      = "nvidia-container-toolkit-ctr"
	// The init container of a driver pod that unloads the former driver.
	driverManager = "k8s-driver-manager"
)

// Pod contains the fields of a pod that the simulator needs.
type Pod struct {
	metav1.ObjectMeta
	Node            string
	App             string
	Operand         string
	Owner           metav1.OwnerReference
	Phase           corev1.PodPhase
	Ready           bool
	Requests        []rules.DeviceRequest
	Devices         string
	State           string
	Hold            string
	Exit            string
	AnnotationsHash uint64
	Inits           []container
	Mains           []container
	ConfigMap       string
	Env             map[string]string
	Args            []string
	Opens           string
	GPURequest      bool // as k8s-driver-manager identifies the pods that it evicts
	EmptyDir        bool
	GPUClient       bool // of a DaemonSet that selects rules.ClientLabel
	Access          access
	RuntimeClass    string
	WithoutSandbox  bool
	Toolkit         rules.ToolkitPaths
	GPUClients      string
	License         licenseVolume
}

type container struct {
	Name, Image string
	// Command is set in pods that request GPUs and are no agents.
	Command string
	Status  corev1.ContainerStatus
}

// Operator returns whether the pod belongs to a DaemonSet of the GPU operator.
func (p *Pod) Operator() bool {
	return p.Owner.Kind == "DaemonSet" && (strings.HasPrefix(p.Owner.Name, "nvidia-") || p.Owner.Name == gfd)
}

// Running returns whether the pod's containers are running.
func (p *Pod) Running() bool {
	return p.Phase == corev1.PodRunning && p.DeletionTimestamp == nil && p.Hold == ""
}

// image returns the image of one of the pod's main containers.
func (p *Pod) image(name string) string {
	for _, c := range p.Mains {
		if c.Name == name {
			return c.Image
		}
	}
	return ""
}

// initImage returns the image of one of the pod's init containers.
func (p *Pod) initImage(name string) string {
	for _, c := range p.Inits {
		if c.Name == name {
			return c.Image
		}
	}
	return ""
}

// Ended returns whether the pod has ended, which releases its devices.
func (p *Pod) Ended() bool {
	return p.Phase == corev1.PodSucceeded || p.Phase == corev1.PodFailed
}

func trimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp}
}

// trimPod is the informer's transform of pods.
func trimPod(object any) (any, error) {
	p, isPod := object.(*corev1.Pod)
	if !isPod {
		return object, nil
	}
	pod := &Pod{ObjectMeta: trimMeta(p.ObjectMeta), Node: p.Spec.NodeName, App: p.Labels["app"], Phase: p.Status.Phase, Devices: p.Annotations[rules.DevicesAnnotation],
		State: p.Annotations[stateAnnotation], Hold: p.Annotations[holdAnnotation], Exit: p.Annotations[rules.ExitAnnotation], AnnotationsHash: annotationsHash(p.Annotations)}
	if owner := metav1.GetControllerOf(p); owner != nil {
		pod.Owner = metav1.OwnerReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
	}
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodReady {
			pod.Ready = condition.Status == corev1.ConditionTrue
		}
		if condition.Type == sandboxReady {
			pod.WithoutSandbox = condition.Status == corev1.ConditionFalse
		}
	}
	if p.Spec.RuntimeClassName != nil {
		pod.RuntimeClass = *p.Spec.RuntimeClassName
	}
	_, selectsClients := p.Spec.NodeSelector[rules.ClientLabel]
	pod.GPUClient = selectsClients && pod.Owner.Kind == "DaemonSet"
	pod.GPURequest = slices.ContainsFunc(p.Spec.Containers, requestsGPU)
	pod.EmptyDir = slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil })
	pod.Opens, pod.Access = p.Annotations[opensAnnotation], accessOf(p)
	pod.Inits = containers(p.Spec.InitContainers, p.Status.InitContainerStatuses)
	pod.Mains = containers(p.Spec.Containers, p.Status.ContainerStatuses)
	pod.Requests = append(requests(p.Spec.InitContainers, true), requests(p.Spec.Containers, false)...)
	if len(pod.Requests) > 0 && pod.Owner.Kind != "DaemonSet" {
		setCommands(pod.Inits, p.Spec.InitContainers)
		setCommands(pod.Mains, p.Spec.Containers)
	}
	if main := operand(p); main != nil {
		pod.Operand = main.Name
		if main.Name != validator {
			describe(pod, p, main)
		}
		if main.Name == driver {
			pod.License = licenseVolumeOf(p, main)
		}
		if main.Name == toolkit {
			pod.Toolkit = toolkitPaths(p, main)
		}
	}
	return pod, nil
}

// operand returns the container that makes the pod an agent; NFD's worker is identified by its program, because charts and
// operators use different container names.
func operand(p *corev1.Pod) *corev1.Container {
	if p.Labels["app"] == validator {
		return &corev1.Container{Name: validator}
	}
	for i := range p.Spec.Containers {
		c := p.Spec.Containers[i]
		if len(c.Command) > 0 && (c.Command[0] == nfdWorker || strings.HasSuffix(c.Command[0], "/"+nfdWorker)) {
			c.Name = nfdWorker
			return &c
		}
		if c.Name == devicePlugin || c.Name == gfd || c.Name == mpsDaemon || c.Name == migManager || c.Name == driver || c.Name == toolkit {
			return &c
		}
	}
	return nil
}

// configPaths are the mount paths of ConfigMaps in agents with a config-manager, NFD's worker and the MIG manager.
var configPaths = []string{"/available-configs", "/etc/kubernetes/node-feature-discovery", "/mig-parted-config"}

// describe stores the configuration of an agent: its environment and that of its config-manager.
func describe(pod *Pod, p *corev1.Pod, main *corev1.Container) {
	pod.Env, pod.Args = map[string]string{}, main.Args
	for _, c := range append(slices.Clone(p.Spec.InitContainers), *main) {
		if c.Name != configManagerInit && c.Name != driverManager && c.Name != main.Name {
			continue
		}
		for _, e := range c.Env {
			pod.Env[e.Name] = e.Value
		}
	}
	mounted := map[string]string{}
	for _, m := range main.VolumeMounts {
		mounted[m.Name] = m.MountPath
	}
	for _, volume := range p.Spec.Volumes {
		if volume.ConfigMap != nil && slices.Contains(configPaths, mounted[volume.Name]) {
			pod.ConfigMap = p.Namespace + "/" + volume.ConfigMap.Name
		}
		if volume.ConfigMap != nil && mounted[volume.Name] == "/gpu-clients" {
			pod.GPUClients = p.Namespace + "/" + volume.ConfigMap.Name
		}
	}
}

func setCommands(found []container, specs []corev1.Container) {
	for i, c := range specs {
		found[i].Command = strings.Join(append(slices.Clone(c.Command), c.Args...), " ")
	}
}

func containers(specs []corev1.Container, statuses []corev1.ContainerStatus) []container {
	found := make([]container, 0, len(specs))
	for _, c := range specs {
		entry := container{Name: c.Name, Image: c.Image}
		for _, s := range statuses {
			if s.Name == c.Name {
				entry.Status = corev1.ContainerStatus{Name: s.Name, Image: s.Image, Ready: s.Ready, Started: s.Started, RestartCount: s.RestartCount,
					State: s.State, LastTerminationState: s.LastTerminationState}
			}
		}
		found = append(found, entry)
	}
	return found
}

func requests(specs []corev1.Container, init bool) []rules.DeviceRequest {
	var found []rules.DeviceRequest
	for _, c := range specs {
		for name, quantity := range c.Resources.Limits {
			if strings.HasPrefix(string(name), extended) && !quantity.IsZero() {
				found = append(found, rules.DeviceRequest{Container: c.Name, Init: init, Resource: string(name), Count: int(quantity.Value())})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b rules.DeviceRequest) int {
		if a.Container == b.Container {
			return strings.Compare(a.Resource, b.Resource)
		}
		return 0
	})
	return found
}

func requestsGPU(c corev1.Container) bool {
	for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
		for name := range list {
			if strings.HasPrefix(string(name), "nvidia.com/gpu") || strings.HasPrefix(string(name), "nvidia.com/mig-") {
				return true
			}
		}
	}
	return false
}

// annotationsHash hashes the annotations of others than the lab: when they change, the kubelet refreshes the pod's volumes.
func annotationsHash(annotations map[string]string) uint64 {
	sum := fnv.New64a()
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if !strings.HasPrefix(key, labAnnotations) {
			fmt.Fprintf(sum, "%s=%s\n", key, annotations[key])
		}
	}
	return sum.Sum64()
}

// trimConfigMap keeps only the data.
func trimConfigMap(object any) (any, error) {
	if c, isConfigMap := object.(*corev1.ConfigMap); isConfigMap {
		return &corev1.ConfigMap{ObjectMeta: trimMeta(c.ObjectMeta), Data: c.Data}, nil
	}
	return object, nil
}
