// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	spec "github.com/NVIDIA/k8s-device-plugin/api/config/v1"
)

const fullGPU = "nvidia.com/gpu"

// The PCI classes of 3D controllers and of VGA controllers.
const computeClass, graphicsClass = "0302", "0300"

var invalidLabelCharacters = regexp.MustCompile(`[^A-Za-z0-9-_. ]`)

// sanitise converts a name to a label value like gpu-feature-discovery.
func sanitise(name string) string {
	return strings.Join(strings.Fields(invalidLabelCharacters.ReplaceAllString(name, "")), "-")
}

// Labels returns the labels of gpu-feature-discovery v0.19 for this hardware and config, without the timestamp (internal/lm
// of NVIDIA/k8s-device-plugin; compared with a live H200 in labels_test.go). The error is its last log line.
func Labels(h *Hardware, l Layout, c *Config) (map[string]string, error) {
	labels := map[string]string{"nvidia.com/vgpu.present": strconv.FormatBool(h != nil && h.VGPU != nil)}
	if h == nil || h.GPUs == 0 {
		return labels, nil
	}
	if c.MPS() && len(l.GPUs) > 0 {
		return nil, errors.New("error creating labeler: error creating sharing labeler: failed to check MPS-capable: MPS sharing is not supported for mig devices")
	}
	versionLabels(labels, h)
	if h.VGPU != nil {
		labels["nvidia.com/vgpu.host-driver-version"] = h.VGPU.HostDriver
		labels["nvidia.com/vgpu.host-driver-branch"] = hostBranch(h.VGPU)
	}
	labels["nvidia.com/gpu.machine"] = "unknown"
	if h.Machine != "" {
		labels["nvidia.com/gpu.machine"] = sanitise(h.Machine)
	}
	labels["nvidia.com/mig.capable"] = strconv.FormatBool(h.MIGCapable)
	labels["nvidia.com/mps.capable"] = strconv.FormatBool(c.MPS())
	labels["nvidia.com/gpu.mode"] = "compute"
	if h.PCIClass == graphicsClass {
		labels["nvidia.com/gpu.mode"] = "graphics"
	}
	gpuLabels(labels, h, l, c)
	if err := migLabels(labels, h, l, c); err != nil {
		return nil, fmt.Errorf("error creating labeler: error creating resource labeler: failed to construct MIG resource labeler: %w", err)
	}
	return labels, nil
}

func versionLabels(labels map[string]string, h *Hardware) {
	driver := append(strings.SplitN(h.Driver, ".", 3), "", "", "")
	major, minor, _ := strings.Cut(h.CUDA, ".")
	for key, value := range map[string]string{
		"cuda.driver.major":            driver[0],
		"cuda.driver.minor":            driver[1],
		"cuda.driver.rev":              driver[2],
		"cuda.driver-version.major":    driver[0],
		"cuda.driver-version.minor":    driver[1],
		"cuda.driver-version.revision": driver[2],
		"cuda.driver-version.full":     h.Driver,
		"cuda.runtime.major":           major,
		"cuda.runtime.minor":           minor,
		"cuda.runtime-version.major":   major,
		"cuda.runtime-version.minor":   minor,
		"cuda.runtime-version.full":    h.CUDA,
	} {
		labels["nvidia.com/"+key] = value
	}
}

// gpuLabels sets the labels of full GPUs. They include the sharing labels if at least one GPU has MIG off.
func gpuLabels(labels map[string]string, h *Hardware, l Layout, c *Config) {
	if len(l.GPUs) < h.GPUs {
		resourceLabels(labels, fullGPU, h.GPUs, c, h.Product)
	} else {
		resourceLabels(labels, fullGPU, h.GPUs, nil, h.Product)
	}
	major, minor, _ := strings.Cut(h.Compute, ".")
	for key, value := range map[string]string{
		"memory":        strconv.Itoa(h.MemoryMiB),
		"family":        h.Family,
		"compute.major": major,
		"compute.minor": minor,
	} {
		labels[fullGPU+"."+key] = value
	}
}

// resourceLabels sets the labels of a resource; without a config, those of a resource that cannot be shared. GFD uses the
// first entry for a resource, but the plugin uses the largest.
func resourceLabels(labels map[string]string, resource string, count int, c *Config, parts ...string) {
	replicas, renamed := 0, false
	if c != nil {
		replicas = 1
		for _, r := range c.Sharing.ReplicatedResources().Resources {
			if string(r.Name) == resource {
				replicas, renamed = r.Replicas, r.Rename != ""
				break
			}
		}
	}
	for i := range parts {
		parts[i] = sanitise(parts[i])
	}
	strategy := spec.SharingStrategyNone
	if replicas > 1 {
		strategy = c.Sharing.SharingStrategy()
		if !renamed {
			parts = append(parts, "SHARED")
		}
	}
	labels[resource+".product"] = strings.Join(parts, "-")
	labels[resource+".count"] = strconv.Itoa(count)
	labels[resource+".replicas"] = strconv.Itoa(replicas)
	labels[resource+".sharing-strategy"] = string(strategy)
}

// hostBranch returns the branch in the format of the vGPU's PCI record.
func hostBranch(v *VGPU) string {
	if v.HostBranch != "" {
		return v.HostBranch
	}
	major, _, _ := strings.Cut(v.HostDriver, ".")
	return "r" + major + "_00"
}
