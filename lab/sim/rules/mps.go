// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
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
	devices, err := deviceMap("", h, l, c)
	if err != nil {
		return nil, nil, fmt.Errorf("error starting plugins: error getting daemons: error building device map: %w", err)
	}
	served, err := mpsResources(h, devices)
	if err != nil {
		return nil, nil, fmt.Errorf("error starting plugins: error getting daemons: invalid MPS configuration: %w", err)
	}
	return c, served, nil
}

// mpsResources are the resources of which there are shares. Those of full GPUs are counted; of MIG devices the daemon
// warns, and serves them all the same (Daemons in cmd/mps-control-daemon/mps/manager.go), though no plugin offers them.
func mpsResources(h *Hardware, devices map[string][]string) ([]string, error) {
	most, served := mpsClients(h.Compute), []string{}
	for resource, ids := range devices {
		shares := map[string]int{}
		for _, id := range ids {
			if gpu := GPU(id); gpu != id {
				shares[gpu]++
			}
		}
		for id, replicas := range shares {
			if !isMIG(id) && replicas > most {
				return nil, fmt.Errorf("invalid device maximum allowed replicas exceeded: %d > %d", replicas, most)
			}
		}
		if len(shares) > 0 {
			served = append(served, resource)
		}
	}
	slices.Sort(served)
	return served, nil
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
