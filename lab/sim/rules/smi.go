// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"fmt"
	"slices"
)

// NvidiaSMI returns the output of `nvidia-smi -L` in a container with these visible GPUs and MIG devices: each GPU, followed
// by its visible MIG devices, both numbered from 0. All MIG devices of a visible GPU are visible.
func NvidiaSMI(node string, h *Hardware, l Layout, visible []string) []string {
	var lines []string
	known := map[string]bool{}
	shown := 0
	for gpu := range h.GPUs {
		uuid := UUID(node, gpu)
		whole := slices.Contains(visible, uuid)
		known[uuid] = true
		var devices []string
		for _, s := range l.GPUs[gpu] {
			id := MIGUUID(node, gpu, s)
			known[id] = true
			if whole || slices.Contains(visible, id) {
				devices = append(devices, fmt.Sprintf("  MIG %-11s Device %2d: (UUID: %s)", s.Profile, len(devices), id))
			}
		}
		if whole || len(devices) > 0 {
			lines = append(append(lines, fmt.Sprintf("GPU %d: %s (UUID: %s)", shown, h.Product, uuid)), devices...)
			shown++
		}
	}
	if slices.ContainsFunc(visible, func(id string) bool { return !known[id] }) {
		lines = append(lines, "No devices found.")
	}
	return lines
}
