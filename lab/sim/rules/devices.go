// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	spec "github.com/NVIDIA/k8s-device-plugin/api/config/v1"
)

const migResource = "nvidia.com/mig-"

// Devices returns the device ids that the plugin registers, by resource, in order. The error is that of a plugin which
// rejects the MIG layout (internal/rm/device_map.go, internal/plugin/mps.go).
func Devices(node string, h *Hardware, l Layout, c *Config) (map[string][]string, error) {
	// The lab's nodes have no IMEX channels (internal/imex/imex.go).
	if c.Imex.Required && len(c.Imex.ChannelIDs) > 0 {
		return nil, fmt.Errorf("error starting plugins: error getting plugins: error querying IMEX channels: requested IMEX channel channel%d does not exist", c.Imex.ChannelIDs[0])
	}
	found, err := deviceMap(node, h, l, c)
	if err != nil {
		return nil, fmt.Errorf("error starting plugins: error getting plugins: unable to create plugins: "+
			"failed to construct resource managers: error building device map: %w", err)
	}
	for _, ids := range found {
		if c.MPS() && slices.ContainsFunc(ids, isMIG) {
			return nil, errors.New("error starting plugins: error getting plugins: unable to create plugins: failed to create plugin: " +
				"sharing using MPS is not supported for MIG devices")
		}
	}
	return found, nil
}

// deviceMap returns the device ids by resource, for the plugin and the MPS control daemon.
func deviceMap(node string, h *Hardware, l Layout, c *Config) (map[string][]string, error) {
	found := map[string][]string{}
	if h == nil {
		return found, nil
	}
	if err := validLayout(h, l, c.MIGStrategy); err != nil {
		return nil, fmt.Errorf("error building device map from config.resources: %w", err)
	}
	for gpu := range h.GPUs {
		if !l.Enabled(gpu) || c.MIGStrategy == spec.MigStrategyNone {
			found[fullGPU] = append(found[fullGPU], UUID(node, gpu))
			continue
		}
		for _, s := range l.GPUs[gpu] {
			resource := deviceResource(h.MIG, s.Profile, c.MIGStrategy)
			found[resource] = append(found[resource], MIGUUID(node, gpu, s))
		}
	}
	return replicate(found, c), nil
}

func isMIG(id string) bool {
	return strings.HasPrefix(id, "MIG-")
}

// deviceResource returns the resource name of a MIG device. Up to v0.19 the plugin compares profiles by substring, so a
// profile with attributes (+me) is registered as the plain profile; GFD distinguishes them (k8s-device-plugin #1807).
func deviceResource(g *Geometry, profile, strategy string) string {
	if strategy == spec.MigStrategySingle {
		return fullGPU
	}
	if _, known := g.Profile(plain(profile)); known {
		profile = plain(profile)
	}
	return migResource + label(profile)
}

// validLayout is the plugin's check: with the strategy "single" all MIG devices of a node must be of one type. It compares
// the attributes of the devices, not their profile names: it treats profiles with and without +gfx as equal, unlike GFD.
func validLayout(h *Hardware, l Layout, strategy string) error {
	if strategy != spec.MigStrategySingle {
		return nil
	}
	kinds := map[attributes]bool{}
	for gpu := range h.GPUs {
		if l.Enabled(gpu) && len(l.GPUs[gpu]) == 0 {
			return fmt.Errorf("invalid MIG configuration: at least one device with migEnabled=true was not configured correctly: "+
				"error visiting device: device %d has no MIG devices configured", gpu)
		}
		for _, s := range l.GPUs[gpu] {
			profile, _ := h.MIG.Profile(s.Profile)
			kinds[profile.attributes()] = true
		}
	}
	if len(kinds) > 1 {
		return errors.New("invalid MIG configuration: error visiting devices: error visiting device: error visiting device: error visiting MIG device: " +
			"error visiting MIG device: more than one MIG device type present on node")
	}
	if len(l.GPUs) > 0 && len(l.GPUs) < h.GPUs {
		return errors.New("all devices on the node must be configured with the same migEnabled value")
	}
	return nil
}

// replicate creates the replicas: of two entries for one resource the larger count applies, and an entry for a resource
// that the node does not have has no effect.
func replicate(devices map[string][]string, c *Config) map[string][]string {
	shared := map[string][]string{}
	for resource, ids := range devices {
		name, replicas := resource, 0
		for _, r := range c.Sharing.ReplicatedResources().Resources {
			if string(r.Name) != resource {
				continue
			}
			replicas = max(replicas, r.Replicas)
			if r.Rename != "" {
				name = string(r.Rename)
			}
		}
		if replicas == 0 {
			shared[name] = append(shared[name], ids...)
			continue
		}
		for _, id := range ids {
			for replica := range replicas {
				shared[name] = append(shared[name], fmt.Sprintf("%s::%d", id, replica))
			}
		}
	}
	return shared
}
