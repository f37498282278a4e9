// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	spec "github.com/NVIDIA/k8s-device-plugin/api/config/v1"
)

// migLabels sets the labels of MIG devices (internal/lm/mig-strategy.go): with "single" as if they were full GPUs, with
// "mixed" by profile. A layout that "single" does not support makes the product invalid.
func migLabels(labels map[string]string, h *Hardware, l Layout, c *Config) error {
	switch c.MIGStrategy {
	case spec.MigStrategyNone:
		return nil
	case spec.MigStrategySingle, spec.MigStrategyMixed:
	default:
		return fmt.Errorf("unknown strategy: %v", c.MIGStrategy)
	}
	labels["nvidia.com/mig.strategy"] = c.MIGStrategy
	counts := map[string]int{}
	for _, devices := range l.GPUs {
		for _, s := range devices {
			counts[s.Profile]++
		}
	}
	profiles := slices.Sorted(maps.Keys(counts))
	if c.MIGStrategy == spec.MigStrategyMixed {
		for _, name := range profiles {
			deviceLabels(labels, migResource+label(name), h, name, counts[name], c)
		}
		return nil
	}
	switch {
	case len(l.GPUs) == 0:
	case len(l.GPUs) < h.GPUs || len(profiles) != 1 || hasEmpty(l):
		invalidLabels(labels, h)
	default:
		deviceLabels(labels, fullGPU, h, profiles[0], counts[profiles[0]], c)
	}
	return nil
}

func hasEmpty(l Layout) bool {
	for _, devices := range l.GPUs {
		if len(devices) == 0 {
			return true
		}
	}
	return false
}

func invalidLabels(labels map[string]string, h *Hardware) {
	for key, value := range map[string]string{"product": sanitise(h.Product) + "-MIG-INVALID", "count": "0", "replicas": "0", "sharing-strategy": "", "memory": "0"} {
		labels[fullGPU+"."+key] = value
	}
}

func deviceLabels(labels map[string]string, resource string, h *Hardware, name string, count int, c *Config) {
	profile, _ := h.MIG.Profile(name)
	resourceLabels(labels, resource, count, c, h.Product, "MIG", label(name))
	for key, value := range map[string]int{
		"memory":          profile.MemoryMiB,
		"multiprocessors": profile.SMs,
		"slices.gi":       profile.Compute,
		"slices.ci":       profile.Compute,
		"engines.copy":    profile.Copy,
		"engines.decoder": profile.Decoder,
		"engines.encoder": profile.Encoder,
		"engines.jpeg":    profile.JPEG,
		"engines.ofa":     profile.OFA,
	} {
		labels[resource+"."+key] = strconv.Itoa(value)
	}
}
