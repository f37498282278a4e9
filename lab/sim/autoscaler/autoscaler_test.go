// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package autoscaler

import (
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lab.invalid/sim/machineapi"
)

var (
	oldKeys = map[string]string{"machine.openshift.io/vCPU": "8", "machine.openshift.io/memoryMb": "32768", "machine.openshift.io/GPU": "1"}
	newKeys = map[string]string{Prefix + "cpu": "8", Prefix + "memory": "32Gi", Prefix + "gpu-count": "4", Prefix + "gpu-type": nvidiaGPU}
)

func joined(all ...map[string]string) map[string]string {
	found := map[string]string{}
	for _, one := range all {
		maps.Copy(found, one)
	}
	return found
}

func rulesOf(t *testing.T, release string) Rules {
	t.Helper()
	rules, err := RulesOf(release)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestReleases(t *testing.T) {
	for _, release := range []string{"4.15", "3.11", "5", "four", ""} {
		if _, err := RulesOf(release); err == nil {
			t.Errorf("%q is accepted", release)
		}
	}
	for release, fixed := range map[string]bool{"4.16": false, "4.17": true, "5.1": true} {
		if rulesOf(t, release).FixedSize != fixed {
			t.Errorf("%s: fixed size", release)
		}
	}
}

func TestCapacity(t *testing.T) {
	mig := "nvidia.com/mig-1g.10gb"
	for _, test := range []struct {
		name, release string
		annotations   map[string]string
		want          map[string]string
		fails         bool
	}{
		{"old keys", "4.18", oldKeys, map[string]string{"cpu": "8", "memory": "32Gi", nvidiaGPU: "1", "pods": "110"}, false},
		{"new keys are not read", "4.18", newKeys, map[string]string{"pods": "110"}, false},
		{"new keys", "4.20", newKeys, map[string]string{"cpu": "8", "memory": "32Gi", nvidiaGPU: "4", "pods": "110"}, false},
		{"new keys win", "4.19", joined(oldKeys, newKeys), map[string]string{"cpu": "8", "memory": "32Gi", nvidiaGPU: "4", "pods": "110"}, false},
		{"old keys as fallback", "4.23", oldKeys, map[string]string{"cpu": "8", "memory": "32Gi", nvidiaGPU: "1", "pods": "110"}, false},
		{"a count of 0 hides the old key", "4.20", joined(oldKeys, map[string]string{Prefix + "gpu-count": "0"}), map[string]string{"cpu": "8", "memory": "32Gi", "pods": "110"}, false},
		{"old keys are not read", "5.0", oldKeys, map[string]string{"pods": "110"}, false},
		{"gpu-type is ignored", "4.20", joined(newKeys, map[string]string{Prefix + "gpu-type": mig}), map[string]string{"cpu": "8", "memory": "32Gi", nvidiaGPU: "4", "pods": "110"}, false},
		{"gpu-type is the resource", "5.0", joined(newKeys, map[string]string{Prefix + "gpu-type": mig}), map[string]string{"cpu": "8", "memory": "32Gi", mig: "4", "pods": "110"}, false},
		{"no gpu-type, no GPU", "5.0", joined(newKeys, map[string]string{Prefix + "gpu-type": ""}), map[string]string{"cpu": "8", "memory": "32Gi", "pods": "110"}, false},
		{"maxPods", "5.0", joined(newKeys, map[string]string{Prefix + "maxPods": "500"}), map[string]string{"cpu": "8", "memory": "32Gi", nvidiaGPU: "4", "pods": "500"}, false},
		{"a quantity as old memory", "4.18", joined(oldKeys, map[string]string{"machine.openshift.io/memoryMb": "32Gi"}), nil, true},
		{"an invalid count", "4.20", joined(newKeys, map[string]string{Prefix + "gpu-count": "one"}), nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			found, err := Capacity(test.annotations, rulesOf(t, test.release))
			if (err != nil) != test.fails {
				t.Fatal(err)
			}
			if !test.fails && len(found) != len(test.want) {
				t.Errorf("%v, want %v", found, test.want)
			}
			for name, want := range test.want {
				if quantity := found[corev1.ResourceName(name)]; quantity.Cmp(resource.MustParse(want)) != 0 {
					t.Errorf("%s is %v, want %s", name, quantity.String(), want)
				}
			}
		})
	}
}

// gpuSet is a MachineSet of T4 nodes with a MachineAutoscaler's range, correct for all releases.
func gpuSet(change func(*machineapi.MachineSet)) *machineapi.MachineSet {
	zero := int32(0)
	set := &machineapi.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "gpu", Annotations: joined(oldKeys, newKeys, map[string]string{
		"machine.openshift.io/GPU": "4", MinAnnotation: "0", MaxAnnotation: "3", Prefix + "labels": Accelerator + "=t4,pool=gpu,topology.kubernetes.io/zone=a",
	})}}
	set.Spec.Replicas = &zero
	set.Spec.Template.Spec.Metadata.Labels = map[string]string{Accelerator: "t4", "pool": "gpu", "topology.kubernetes.io/zone": "a"}
	set.Spec.Template.Spec.Taints = []corev1.Taint{{Key: nvidiaGPU, Value: "present", Effect: corev1.TaintEffectNoSchedule}}
	if change != nil {
		change(set)
	}
	return set
}

func gpuPod(name, gpus string, change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Minute))}}
	pod.Spec.NodeSelector = map[string]string{"pool": "gpu"}
	pod.Spec.Tolerations = []corev1.Toleration{{Key: nvidiaGPU, Operator: corev1.TolerationOpExists}}
	pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{nvidiaGPU: resource.MustParse(gpus)}}}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	if change != nil {
		change(pod)
	}
	return pod
}

func clusterAutoscaler(kind string, limit int64) *machineapi.ClusterAutoscaler {
	found := &machineapi.ClusterAutoscaler{}
	found.Spec.ResourceLimits = &struct {
		MaxNodesTotal *int32                `json:"maxNodesTotal,omitempty"`
		Cores         *machineapi.Range     `json:"cores,omitempty"`
		Memory        *machineapi.Range     `json:"memory,omitempty"`
		GPUS          []machineapi.GPULimit `json:"gpus,omitempty"`
	}{}
	if kind != "" {
		found.Spec.ResourceLimits.GPUS = []machineapi.GPULimit{{Type: kind, Range: machineapi.Range{Max: limit}}}
	}
	return found
}

func TestScaleFromZero(t *testing.T) {
	all := []string{"4.16", "4.18", "4.20", "4.22", "5.0"}
	until5 := all[:4]
	rename := func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"nvidia.com/gpu.shared": resource.MustParse("1")}
	}
	for _, test := range []struct {
		name     string
		releases []string
		set      func(*machineapi.MachineSet)
		pod      func(*corev1.Pod)
		scaler   *machineapi.ClusterAutoscaler
		to       int
		reason   string
	}{
		{"correct", all, nil, nil, clusterAutoscaler("t4", 12), 1, ""},
		{"without limits", all, nil, nil, clusterAutoscaler("", 0), 1, ""},
		{"a limit of another type", all, nil, nil, clusterAutoscaler("a100", 1), 1, ""},
		{"a limit smaller than a node", all, nil, nil, clusterAutoscaler("t4", 3), 0, "max cluster t4 limit reached"},
		{"no toleration", all, nil, func(p *corev1.Pod) { p.Spec.Tolerations = nil }, clusterAutoscaler("", 0), 0, "untolerated taint {nvidia.com/gpu: present}"},
		{"a zone in the annotation", all, nil, func(p *corev1.Pod) { p.Spec.NodeSelector["topology.kubernetes.io/zone"] = "a" }, clusterAutoscaler("", 0), 1, ""},
		{"a missing zone label", all, func(m *machineapi.MachineSet) {
			delete(m.Spec.Template.Spec.Metadata.Labels, "topology.kubernetes.io/zone")
			m.Annotations[Prefix+"labels"] = "pool=gpu"
		}, func(p *corev1.Pod) { p.Spec.NodeSelector["topology.kubernetes.io/zone"] = "a" }, clusterAutoscaler("", 0), 0, "didn't match Pod's node affinity/selector"},
		{"labels only in the template", until5, func(m *machineapi.MachineSet) { delete(m.Annotations, Prefix+"labels") }, nil, clusterAutoscaler("", 0), 1, ""},
		{"labels only in the template of 5.0", all[4:], func(m *machineapi.MachineSet) { delete(m.Annotations, Prefix+"labels") }, nil, clusterAutoscaler("", 0), 0,
			"didn't match Pod's node affinity/selector"},
		{"a renamed resource", until5, func(m *machineapi.MachineSet) { m.Annotations[Prefix+"gpu-type"] = "nvidia.com/gpu.shared" }, rename, clusterAutoscaler("", 0), 0,
			"Insufficient nvidia.com/gpu.shared"},
		{"a renamed resource on 5.0", all[4:], func(m *machineapi.MachineSet) { m.Annotations[Prefix+"gpu-type"] = "nvidia.com/gpu.shared" }, rename, clusterAutoscaler("", 0), 1, ""},
		{"an illegal accelerator label counts in the template", all, func(m *machineapi.MachineSet) {
			m.Spec.Template.Spec.Metadata.Labels[Accelerator] = nvidiaGPU
			m.Annotations[Prefix+"labels"] = Accelerator + "=nvidia.com/gpu,pool=gpu"
		}, nil, clusterAutoscaler(nvidiaGPU, 3), 0, "max cluster nvidia.com/gpu limit reached"},
		{"low priority", all, nil, func(p *corev1.Pod) { low := int32(-11); p.Spec.Priority = &low }, clusterAutoscaler("", 0), 0, "-"},
		{"no cpu", all, func(m *machineapi.MachineSet) {
			delete(m.Annotations, "machine.openshift.io/vCPU")
			delete(m.Annotations, Prefix+"cpu")
		}, nil, clusterAutoscaler("", 0), 0, "-"},
		{"no range", all, func(m *machineapi.MachineSet) { delete(m.Annotations, MaxAnnotation) }, nil, clusterAutoscaler("", 0), 0, "-"},
		{"at its maximum", all, func(m *machineapi.MachineSet) { three := int32(3); m.Spec.Replicas = &three }, func(p *corev1.Pod) {
			p.Spec.NodeSelector["other"] = "x"
		}, clusterAutoscaler("", 0), 0, "max node group size reached"},
		{"without a ClusterAutoscaler", all, nil, nil, nil, 0, "-"},
	} {
		for _, release := range test.releases {
			t.Run(test.name+" on "+release, func(t *testing.T) {
				pod := gpuPod("p", "1", test.pod)
				result := Decide(&State{Rules: rulesOf(t, release), Now: time.Now(), MachineSets: []*machineapi.MachineSet{gpuSet(test.set)}, Pods: []*corev1.Pod{pod}, Autoscaler: test.scaler})
				if result.To != test.to || (result.Group != "") != (test.to > 0) {
					t.Errorf("scaled to %d, want %d: %+v", result.To, test.to, result)
				}
				if reason := result.Rejected["n/p"]["gpu"]; test.reason != "-" && test.reason != "" && !strings.Contains(reason, test.reason) {
					t.Errorf("reason %q, want %q", reason, test.reason)
				}
			})
		}
	}
}

func TestFixedSize(t *testing.T) {
	set := gpuSet(func(m *machineapi.MachineSet) { m.Annotations[MinAnnotation] = "3" })
	for release, want := range map[string]int{"4.16": 0, "4.18": 1} {
		result := Decide(&State{Rules: rulesOf(t, release), Now: time.Now(), MachineSets: []*machineapi.MachineSet{set}, Pods: []*corev1.Pod{gpuPod("p", "1", nil)}, Autoscaler: clusterAutoscaler("", 0)})
		if result.To != want {
			t.Errorf("%s: scaled to %d, want %d", release, result.To, want)
		}
	}
}

// machineNode is a node of the MachineSet gpu, with its Machine.
func machineNode(age time.Duration, change func(*corev1.Node)) (*machineapi.Machine, *corev1.Node) {
	machine := &machineapi.Machine{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1", OwnerReferences: []metav1.OwnerReference{{Kind: "MachineSet", Name: "gpu"}}}}
	since := metav1.NewTime(time.Now().Add(-age))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", CreationTimestamp: since, Labels: map[string]string{Accelerator: "t4", "pool": "gpu"},
		Annotations: map[string]string{MachineAnnotation: "openshift-machine-api/gpu-1"}}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: since}}
	node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("32Gi"), nvidiaGPU: resource.MustParse("4"), "pods": resource.MustParse("110")}
	node.Status.Capacity = node.Status.Allocatable
	if change != nil {
		change(node)
	}
	return machine, node
}

// A node with the accelerator label but without GPUs is starting for 15 minutes: its pods wait. Afterwards, more nodes follow.
func TestNodesWaitForTheirGPUs(t *testing.T) {
	noGPU := func(node *corev1.Node) {
		node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("32Gi"), "pods": resource.MustParse("110")}
	}
	for _, test := range []struct {
		name    string
		age     time.Duration
		change  func(*corev1.Node)
		to      int
		waiting bool
	}{
		{"with GPUs", time.Hour, nil, 0, true},
		{"starting", time.Minute, noGPU, 0, true},
		{"too long", time.Hour, noGPU, 2, false},
		{"without the label", 30 * time.Second, func(n *corev1.Node) { noGPU(n); delete(n.Labels, Accelerator) }, 2, false},
		{"without the label, as the template", time.Hour, func(n *corev1.Node) { noGPU(n); delete(n.Labels, Accelerator) }, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			machine, node := machineNode(test.age, test.change)
			set := gpuSet(func(m *machineapi.MachineSet) { one := int32(1); m.Spec.Replicas = &one })
			result := Decide(&State{Rules: rulesOf(t, "4.18"), Now: time.Now(), MachineSets: []*machineapi.MachineSet{set}, Machines: []*machineapi.Machine{machine},
				Nodes: []*corev1.Node{node}, Pods: []*corev1.Pod{gpuPod("p", "1", nil)}, Autoscaler: clusterAutoscaler("", 0)})
			if result.To != test.to || (len(result.Waiting) > 0) != test.waiting {
				t.Errorf("%+v", result)
			}
		})
	}
}

func TestNumberOfNodes(t *testing.T) {
	var pods []*corev1.Pod
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		pods = append(pods, gpuPod(name, "2", nil))
	}
	for limit, want := range map[int64]int{0: 3, 4: 1, 9: 2, 100: 3} {
		kind := map[bool]string{true: "t4", false: ""}[limit > 0]
		result := Decide(&State{Rules: rulesOf(t, "4.20"), Now: time.Now(), MachineSets: []*machineapi.MachineSet{gpuSet(nil)}, Pods: pods, Autoscaler: clusterAutoscaler(kind, limit)})
		if result.To != want {
			t.Errorf("limit %d: %d nodes, want %d", limit, result.To, want)
		}
	}
}

func TestPriorityExpander(t *testing.T) {
	other := gpuSet(func(m *machineapi.MachineSet) { m.Name = "spot" })
	scaler := clusterAutoscaler("", 0)
	scaler.Spec.Expanders = []string{"Priority"}
	for range 10 {
		result := Decide(&State{Rules: rulesOf(t, "4.18"), Now: time.Now(), MachineSets: []*machineapi.MachineSet{gpuSet(nil), other}, Pods: []*corev1.Pod{gpuPod("p", "1", nil)},
			Autoscaler: scaler, Priorities: map[int][]string{10: {".*gpu$"}, 50: {".*spot.*"}}})
		if result.Group != "spot" {
			t.Fatalf("%+v", result)
		}
	}
}

func TestUnneededNodes(t *testing.T) {
	controlled := func(kind string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.NodeName = "n1"
			yes := true
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Controller: &yes}}
		}
	}
	for _, test := range []struct {
		name string
		pods []*corev1.Pod
		min  string
		want bool
	}{
		{"empty", nil, "0", true},
		{"at its minimum", nil, "1", false},
		{"DaemonSet", []*corev1.Pod{gpuPod("p", "0", controlled("DaemonSet"))}, "0", true},
		{"a pod without a controller", []*corev1.Pod{gpuPod("p", "0", func(p *corev1.Pod) { p.Spec.NodeName = "n1" })}, "0", false},
		{"all GPUs are used", []*corev1.Pod{gpuPod("p", "4", controlled("ReplicaSet"))}, "0", false},
		{"a pod that fits nowhere else", []*corev1.Pod{gpuPod("p", "1", controlled("ReplicaSet"))}, "0", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			machine, node := machineNode(time.Hour, nil)
			set := gpuSet(func(m *machineapi.MachineSet) {
				one := int32(1)
				m.Spec.Replicas = &one
				m.Annotations[MinAnnotation] = test.min
			})
			found, after := Unneeded(&State{Rules: rulesOf(t, "4.18"), Now: time.Now(), MachineSets: []*machineapi.MachineSet{set}, Machines: []*machineapi.Machine{machine},
				Nodes: []*corev1.Node{node}, Pods: test.pods, Autoscaler: clusterAutoscaler("", 0)})
			if _, unneeded := found["n1"]; unneeded != test.want || (test.want && after["n1"] != UnneededTime) {
				t.Errorf("%v, after %v", found, after)
			}
		})
	}
}

func TestOperator(t *testing.T) {
	scaler := &machineapi.MachineAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: machineapi.Namespace, Name: "gpu"}}
	scaler.Spec.MaxReplicas = 2
	set := &machineapi.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "gpu", Annotations: joined(oldKeys)}}
	annotations, changed, err := Target(set, scaler)
	if err != nil || !changed || annotations[MaxAnnotation] != "2" || annotations[Prefix+"memory"] != "34359738368" || annotations[Prefix+"gpu-type"] != nvidiaGPU || annotations[Prefix+"gpu-count"] != "1" {
		t.Errorf("%v, changed %v, %v", annotations, changed, err)
	}
	set.Annotations = annotations
	set.Annotations[OldPrefix+"GPU"] = "8" // a later change is not copied
	if again, changed, _ := Target(set, scaler); changed || again[Prefix+"gpu-count"] != "1" {
		t.Errorf("%v, changed %v", again, changed)
	}
	scaler.Name = "other"
	if _, _, err := Target(set, scaler); err == nil {
		t.Error("a second MachineAutoscaler is accepted")
	}
	if released := Released(set); released[MaxAnnotation] != "" || released[OwnerAnnotation] != "" || released[Prefix+"cpu"] != "8" {
		t.Errorf("%v", released)
	}
	if warning := AcceleratorWarning(set); !strings.Contains(warning, "no label") {
		t.Error(warning)
	}
	set.Spec.Template.Spec.Metadata.Labels = map[string]string{Accelerator: nvidiaGPU}
	if warning := AcceleratorWarning(set); !strings.Contains(warning, "invalid value") {
		t.Error(warning)
	}
}
