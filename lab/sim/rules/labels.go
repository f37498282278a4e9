// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"regexp"
	"strconv"
	"strings"

	spec "github.com/NVIDIA/k8s-device-plugin/api/config/v1"
)

const fullGPU = "nvidia.com/gpu"

var unlabelable = regexp.MustCompile(`[^A-Za-z0-9-_. ]`)

// sanitise turns a name into a label value as gpu-feature-discovery does.
func sanitise(name string) string {
	return strings.Join(strings.Fields(unlabelable.ReplaceAllString(name, "")), "-")
}

// Labels are the labels of gpu-feature-discovery v0.19 for a node of this hardware under this config, without its
// timestamp (gfd/lm of NVIDIA/k8s-device-plugin; compared with a live H200 in labels_test.go).
func Labels(h *Hardware, c *Config) map[string]string {
	labels := map[string]string{"nvidia.com/vgpu.present": strconv.FormatBool(h != nil && h.VGPU != nil)}
	if h == nil || h.GPUs == 0 {
		return labels
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
	labels["nvidia.com/mps.capable"] = strconv.FormatBool(c.Sharing.SharingStrategy() == spec.SharingStrategyMPS)
	if c.MIGStrategy != spec.MigStrategyNone {
		labels["nvidia.com/mig.strategy"] = c.MIGStrategy
	}
	labels["nvidia.com/gpu.mode"] = "compute"
	gpuLabels(labels, h, c)
	return labels
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

// gpuLabels uses the first entry of a resource, unlike the plugin, which takes the largest.
func gpuLabels(labels map[string]string, h *Hardware, c *Config) {
	replicas, renamed := 1, false
	for _, r := range c.Sharing.ReplicatedResources().Resources {
		if r.Name == fullGPU {
			replicas, renamed = r.Replicas, r.Rename != ""
			break
		}
	}
	product, strategy := sanitise(h.Product), string(spec.SharingStrategyNone)
	if replicas > 1 {
		strategy = string(c.Sharing.SharingStrategy())
		if !renamed {
			product += "-SHARED"
		}
	}
	major, minor, _ := strings.Cut(h.Compute, ".")
	for key, value := range map[string]string{
		"product":          product,
		"count":            strconv.Itoa(h.GPUs),
		"replicas":         strconv.Itoa(replicas),
		"sharing-strategy": strategy,
		"memory":           strconv.Itoa(h.MemoryMiB),
		"family":           h.Family,
		"compute.major":    major,
		"compute.minor":    minor,
	} {
		labels[fullGPU+"."+key] = value
	}
}

// hostBranch is the branch as the host writes it into the vGPU's PCI record.
func hostBranch(v *VGPU) string {
	if v.HostBranch != "" {
		return v.HostBranch
	}
	major, _, _ := strings.Cut(v.HostDriver, ".")
	return "r" + major + "_00"
}
