// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	spec "github.com/NVIDIA/k8s-device-plugin/api/config/v1"
)

// NoMPSDaemon is what a device plugin logs, every 30 seconds, as long as it finds no MPS control daemon.
const NoMPSDaemon = "Failed to start plugin: error waiting for MPS daemon: error checking MPS daemon health: failed to send command to MPS daemon: exit status 1"

// MPSConfig reads a config as mps-control-daemon does, and returns the resources whose shares it will serve: none,
// and no error, when the config has no MPS. The error is its last log line.
func MPSConfig(text string, env Environment, h *Hardware, l Layout) (*Config, []string, error) {
	_, c, err := load(text, env)
	if err != nil {
		return nil, nil, fmt.Errorf("error starting plugins: %w", err)
	}
	if !c.MPS() || h == nil {
		return c, nil, nil
	}
	if err := validLayout(h, l, c.MIGStrategy); err != nil {
		return nil, nil, fmt.Errorf("error starting plugins: error getting daemons: error building device map: "+
			"error building device map from config.resources: %w", err)
	}
	served, err := mpsResources(h, l, c)
	if err != nil {
		return nil, nil, fmt.Errorf("error starting plugins: error getting daemons: invalid MPS configuration: %w", err)
	}
	return c, served, nil
}

// mpsResources checks the shares of full GPUs; MIG devices are passed over with a warning.
func mpsResources(h *Hardware, l Layout, c *Config) ([]string, error) {
	if c.MIGStrategy != spec.MigStrategyNone && len(l.GPUs) == h.GPUs {
		return nil, nil
	}
	most, served := mpsClients(h.Compute), map[string]bool{}
	for _, r := range c.Sharing.ReplicatedResources().Resources {
		if r.Name != fullGPU {
			continue
		}
		if r.Replicas > most {
			return nil, fmt.Errorf("invalid device maximum allowed replicas exceeded: %d > %d", r.Replicas, most)
		}
		name := r.Name
		if r.Rename != "" {
			name = r.Rename
		}
		served[string(name)] = true
	}
	return slices.Sorted(maps.Keys(served)), nil
}

// mpsClients is how many clients an MPS server takes (cmd/mps-control-daemon/mps/device.go).
func mpsClients(compute string) int {
	major, minor, _ := strings.Cut(compute, ".")
	x, _ := strconv.Atoi(major)
	y, _ := strconv.Atoi(minor)
	if x > 7 || x == 7 && y >= 5 {
		return 48
	}
	return 16
}
