// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// NoMPSDaemon is the message that a device plugin logs every 30 seconds while it finds no MPS control daemon.
const NoMPSDaemon = "Failed to start plugin: error waiting for MPS daemon: error checking MPS daemon health: failed to send command to MPS daemon: exit status 1"

// MPSConfig parses a config like mps-control-daemon, and returns the resources whose replicas it serves: none, without an
// error, if the config does not use MPS. The error is its last log line.
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

// mpsResources returns the resources with replicas. The daemon limits the replicas of full GPUs; for MIG devices it only
// warns and serves them (Daemons in cmd/mps-control-daemon/mps/manager.go), although the plugin does not register them.
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

// mpsClients returns the maximum number of clients of an MPS server (cmd/mps-control-daemon/mps/device.go).
func mpsClients(compute string) int {
	major, minor, _ := strings.Cut(compute, ".")
	x, _ := strconv.Atoi(major)
	y, _ := strconv.Atoi(minor)
	if x > 7 || x == 7 && y >= 5 {
		return 48
	}
	return 16
}
