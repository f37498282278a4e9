// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Package machineapi contains the fields of OpenShift's Machine API and autoscaling API that the simulator reads and writes.
package machineapi

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Namespace is the namespace of the Machine API's objects.
const Namespace = "openshift-machine-api"

// The resources of both APIs.
var (
	MachineSets           = schema.GroupVersionResource{Group: "machine.openshift.io", Version: "v1beta1", Resource: "machinesets"}
	Machines              = schema.GroupVersionResource{Group: "machine.openshift.io", Version: "v1beta1", Resource: "machines"}
	MachineAutoscalers    = schema.GroupVersionResource{Group: "autoscaling.openshift.io", Version: "v1beta1", Resource: "machineautoscalers"}
	ClusterAutoscalers    = schema.GroupVersionResource{Group: "autoscaling.openshift.io", Version: "v1", Resource: "clusterautoscalers"}
	MachineSetKind        = schema.GroupVersionKind{Group: "machine.openshift.io", Version: "v1beta1", Kind: "MachineSet"}
	MachineKind           = schema.GroupVersionKind{Group: "machine.openshift.io", Version: "v1beta1", Kind: "Machine"}
	MachineAutoscalerKind = schema.GroupVersionKind{Group: "autoscaling.openshift.io", Version: "v1beta1", Kind: "MachineAutoscaler"}
)

// MachineSet is machine.openshift.io/v1beta1 MachineSet.
type MachineSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              MachineSetSpec   `json:"spec"`
	Status            MachineSetStatus `json:"status,omitempty"`
}

// MachineSetSpec is the spec of a MachineSet.
type MachineSetSpec struct {
	Replicas        *int32               `json:"replicas,omitempty"`
	DeletePolicy    string               `json:"deletePolicy,omitempty"`
	MinReadySeconds int32                `json:"minReadySeconds,omitempty"`
	Selector        metav1.LabelSelector `json:"selector"`
	Template        struct {
		Metadata Metadata    `json:"metadata,omitempty"`
		Spec     MachineSpec `json:"spec"`
	} `json:"template"`
}

// MachineSetStatus is the status of a MachineSet.
type MachineSetStatus struct {
	Replicas             int32 `json:"replicas"`
	FullyLabeledReplicas int32 `json:"fullyLabeledReplicas,omitempty"`
	ReadyReplicas        int32 `json:"readyReplicas,omitempty"`
	AvailableReplicas    int32 `json:"availableReplicas,omitempty"`
	ObservedGeneration   int64 `json:"observedGeneration,omitempty"`
}

// Metadata is the metadata of a template.
type Metadata struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Machine is machine.openshift.io/v1beta1 Machine.
type Machine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              MachineSpec   `json:"spec"`
	Status            MachineStatus `json:"status,omitempty"`
}

// MachineSpec is the spec of a Machine; its metadata are the labels and annotations of the node.
type MachineSpec struct {
	Metadata       Metadata       `json:"metadata,omitempty"`
	Taints         []corev1.Taint `json:"taints,omitempty"`
	ProviderID     string         `json:"providerID,omitempty"`
	ProviderSpec   ProviderSpec   `json:"providerSpec"`
	LifecycleHooks Hooks          `json:"lifecycleHooks,omitzero"`
}

// ProviderSpec contains the cloud's part of a Machine.
type ProviderSpec struct {
	Value map[string]any `json:"value,omitempty"`
}

// Hooks are the lifecycle hooks that block the deletion of a Machine.
type Hooks struct {
	PreDrain     []Hook `json:"preDrain,omitempty"`
	PreTerminate []Hook `json:"preTerminate,omitempty"`
}

// Hook is one lifecycle hook.
type Hook struct {
	Name  string `json:"name"`
	Owner string `json:"owner"`
}

// MachineStatus is the status of a Machine.
type MachineStatus struct {
	Phase          string                  `json:"phase,omitempty"`
	NodeRef        *corev1.ObjectReference `json:"nodeRef,omitempty"`
	Addresses      []corev1.NodeAddress    `json:"addresses,omitempty"`
	ErrorReason    string                  `json:"errorReason,omitempty"`
	ErrorMessage   string                  `json:"errorMessage,omitempty"`
	Conditions     []Condition             `json:"conditions,omitempty"`
	ProviderStatus map[string]any          `json:"providerStatus,omitempty"`
	LastUpdated    *metav1.Time            `json:"lastUpdated,omitempty"`
}

// Condition is a condition of a Machine.
type Condition struct {
	Type               string      `json:"type"`
	Status             string      `json:"status"`
	Severity           string      `json:"severity,omitempty"`
	Reason             string      `json:"reason,omitempty"`
	Message            string      `json:"message,omitempty"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
}

// MachineAutoscaler is autoscaling.openshift.io/v1beta1 MachineAutoscaler.
type MachineAutoscaler struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		MinReplicas    int    `json:"minReplicas"`
		MaxReplicas    int    `json:"maxReplicas"`
		ScaleTargetRef Target `json:"scaleTargetRef"`
	} `json:"spec"`
	Status struct {
		LastTargetRef *Target `json:"lastTargetRef,omitempty"`
	} `json:"status,omitempty"`
}

// Target is the object that a MachineAutoscaler scales.
type Target struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
}

// ClusterAutoscaler is autoscaling.openshift.io/v1 ClusterAutoscaler; only the one named default has an effect.
type ClusterAutoscaler struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ClusterAutoscalerSpec `json:"spec"`
}

// ClusterAutoscalerSpec is the spec of a ClusterAutoscaler.
type ClusterAutoscalerSpec struct {
	PodPriorityThreshold      *int32   `json:"podPriorityThreshold,omitempty"`
	SkipNodesWithLocalStorage *bool    `json:"skipNodesWithLocalStorage,omitempty"`
	Expanders                 []string `json:"expanders,omitempty"`
	EnforceNodeGroupMinSize   string   `json:"enforceNodeGroupMinSize,omitempty"`
	MaxNodeProvisionTime      string   `json:"maxNodeProvisionTime,omitempty"`
	StartupTaints             []string `json:"startupTaints,omitempty"`
	ResourceLimits            *struct {
		MaxNodesTotal *int32     `json:"maxNodesTotal,omitempty"`
		Cores         *Range     `json:"cores,omitempty"`
		Memory        *Range     `json:"memory,omitempty"`
		GPUS          []GPULimit `json:"gpus,omitempty"`
	} `json:"resourceLimits,omitempty"`
	ScaleUp *struct {
		NewPodScaleUpDelay string `json:"newPodScaleUpDelay,omitempty"`
	} `json:"scaleUp,omitempty"`
	ScaleDown *ScaleDown `json:"scaleDown,omitempty"`
}

// ScaleDown are the settings for scaling down; without them it is enabled with the autoscaler's defaults.
type ScaleDown struct {
	Enabled              bool   `json:"enabled"`
	DelayAfterAdd        string `json:"delayAfterAdd,omitempty"`
	DelayAfterDelete     string `json:"delayAfterDelete,omitempty"`
	DelayAfterFailure    string `json:"delayAfterFailure,omitempty"`
	UnneededTime         string `json:"unneededTime,omitempty"`
	UtilizationThreshold string `json:"utilizationThreshold,omitempty"`
}

// Range is a minimum and a maximum; the unit of memory is GiB.
type Range struct {
	Min int64 `json:"min"`
	Max int64 `json:"max"`
}

// GPULimit is the range of the GPUs of one type, which is the value of the accelerator label.
type GPULimit struct {
	Type string `json:"type"`
	Range
}
