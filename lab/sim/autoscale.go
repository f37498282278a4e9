// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lab.invalid/sim/autoscaler"
	"lab.invalid/sim/machineapi"
)

// scaleQuery is one line of input of `sim autoscale`: a cluster and one pending pod.
type scaleQuery struct {
	Release            string                          `json:"release"`
	MachineSets        []*machineapi.MachineSet        `json:"machine_sets"`
	MachineAutoscalers []*machineapi.MachineAutoscaler `json:"machine_autoscalers"`
	ClusterAutoscaler  *machineapi.ClusterAutoscaler   `json:"cluster_autoscaler"`
	Machines           []*machineapi.Machine           `json:"machines"`
	Nodes              []*corev1.Node                  `json:"nodes"`
	Pods               []*corev1.Pod                   `json:"pods"`
	Pod                *corev1.Pod                     `json:"pod"`
}

// scaleAnswer is one line of output: whether a MachineSet is scaled up for the pod, and otherwise the reason of each.
type scaleAnswer struct {
	Scales     bool              `json:"scales"`
	MachineSet string            `json:"machine_set,omitempty"`
	Replicas   int               `json:"replicas,omitempty"`
	Waiting    bool              `json:"waiting,omitempty"`
	Reasons    map[string]string `json:"reasons,omitempty"`
	Problem    string            `json:"problem,omitempty"`
}

// autoscale answers JSON lines with the same decision as the running simulator.
func autoscale(arguments []string) error {
	if len(arguments) > 0 {
		return errors.New("autoscale takes no arguments: it reads JSON lines")
	}
	reader, output := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var query scaleQuery
		if err := reader.Decode(&query); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := output.Encode(answer(&query)); err != nil {
			return err
		}
	}
}

func answer(query *scaleQuery) scaleAnswer {
	rules, err := autoscaler.RulesOf(query.Release)
	if err != nil {
		return scaleAnswer{Problem: err.Error()}
	}
	if query.Pod == nil {
		return scaleAnswer{Problem: "no pod"}
	}
	reasons := map[string]string{}
	for _, scaler := range query.MachineAutoscalers {
		for _, set := range query.MachineSets {
			if set.Name != scaler.Spec.ScaleTargetRef.Name {
				continue
			}
			annotations, _, err := autoscaler.Target(set, scaler)
			if err != nil {
				reasons[set.Name] = err.Error()
				continue
			}
			set.Annotations = annotations
		}
	}
	pod := query.Pod.DeepCopy()
	pod.Spec.NodeName = ""
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	now := time.Now()
	if pod.CreationTimestamp.IsZero() {
		pod.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	}
	result := autoscaler.Decide(&autoscaler.State{
		Rules: rules, Now: now, MachineSets: query.MachineSets, Machines: query.Machines, Nodes: query.Nodes,
		Pods: append(query.Pods, pod), Autoscaler: query.ClusterAutoscaler,
	})
	found := scaleAnswer{Problem: result.Disabled, Waiting: slices.Contains(result.Waiting, pod), Reasons: reasons}
	for name, reason := range result.Ignored {
		reasons[name] = reason
	}
	for name, reason := range result.Rejected[fmt.Sprintf("%s/%s", pod.Namespace, pod.Name)] {
		reasons[name] = reason
	}
	if result.Group != "" {
		found.Scales, found.MachineSet, found.Replicas = true, result.Group, result.To
	}
	return found
}
