// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package autoscaler

import (
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"lab.invalid/sim/machineapi"
)

// OwnerAnnotation is how the autoscaler's operator marks the MachineSet of a MachineAutoscaler.
const OwnerAnnotation = "autoscaling.openshift.io/machineautoscaler"

// Target returns the annotations of a MachineSet after the operator has processed its MachineAutoscaler, and whether it saves
// them; it copies the old capacity annotations, but saves the copies only together with another size. An error is what the
// operator reports as an event. The operator is that of 4.15 and newer.
func Target(set *machineapi.MachineSet, scaler *machineapi.MachineAutoscaler) (map[string]string, bool, error) {
	owner := scaler.Namespace + "/" + scaler.Name
	annotations := map[string]string{}
	for key, value := range set.Annotations {
		annotations[key] = value
	}
	if now := annotations[OwnerAnnotation]; now != "" && now != owner {
		return nil, false, fmt.Errorf("error setting target owner: already owned by another MachineAutoscaler")
	}
	low, high := strconv.Itoa(scaler.Spec.MinReplicas), strconv.Itoa(scaler.Spec.MaxReplicas)
	same := annotations[OwnerAnnotation] == owner && annotations[MinAnnotation] == low && annotations[MaxAnnotation] == high
	annotations[OwnerAnnotation], annotations[MinAnnotation], annotations[MaxAnnotation] = owner, low, high
	if same {
		return annotations, false, nil
	}
	for _, one := range []struct{ old, key string }{{"vCPU", "cpu"}, {"memoryMb", "memory"}, {"GPU", "gpu-count"}, {"maxPods", "maxPods"}} {
		value, old := annotations[OldPrefix+one.old]
		if _, present := annotations[Prefix+one.key]; !old || present {
			continue
		}
		if one.key == "memory" {
			quantity, err := mebibytes(value)
			if err != nil {
				return nil, false, fmt.Errorf("could not parse integer: %w", err)
			}
			value = resource.NewQuantity(quantity.Value(), resource.DecimalSI).String()
		}
		annotations[Prefix+one.key] = value
	}
	if count, old := annotations[OldPrefix+"GPU"]; old {
		if _, present := annotations[Prefix+"gpu-type"]; !present {
			annotations[Prefix+"gpu-type"] = map[bool]string{true: "", false: nvidiaGPU}[count == "0"]
		}
	}
	return annotations, true, nil
}

// Released returns the annotations of a MachineSet without those of the operator, after its MachineAutoscaler is deleted.
func Released(set *machineapi.MachineSet) map[string]string {
	annotations := map[string]string{}
	for key, value := range set.Annotations {
		if !slices.Contains([]string{OwnerAnnotation, MinAnnotation, MaxAnnotation}, key) {
			annotations[key] = value
		}
	}
	return annotations
}

// AcceleratorWarning returns the operator's warning about the accelerator label of a MachineSet with GPUs, or nothing.
func AcceleratorWarning(set *machineapi.MachineSet) string {
	if count, err := strconv.Atoi(set.Annotations[OldPrefix+"GPU"]); err != nil || count < 1 {
		return ""
	}
	value, present := set.Spec.Template.Spec.Metadata.Labels[Accelerator]
	if !present {
		return fmt.Sprintf("MachineSet %s has GPU capacity but no label %s: GPU resource limits are not applied to it", set.Name, Accelerator)
	}
	if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
		return fmt.Sprintf("invalid value %q of label %s: %s", value, Accelerator, problems[0])
	}
	return ""
}
