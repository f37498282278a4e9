// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"fmt"
	"slices"
	"strings"
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

// NvidiaSMIQuery returns the output of `nvidia-smi -q` on a node, without the sections of clocks, memory and errors. status is the
// license status of a vGPU.
func NvidiaSMIQuery(node string, h *Hardware, status string) []string {
	field := func(indent int, name, value string) string {
		return fmt.Sprintf("%-*s: %s", 42, strings.Repeat(" ", indent)+name, value)
	}
	mode, licensed := "None", "N/A"
	if h.Passthrough {
		mode = "Pass-Through"
	}
	name := h.Product
	if h.VGPU != nil {
		mode, licensed = "VGPU", product(h.VGPU.Profile)
		if !strings.HasSuffix(name, h.VGPU.Profile) {
			name = "NVIDIA " + h.VGPU.Profile
		}
	} else {
		status = "N/A"
	}
	lines := []string{"", "==============NVSMI LOG==============", "", field(0, "Driver Version", h.Driver), field(0, "CUDA Version", h.CUDA), "",
		field(0, "Attached GPUs", fmt.Sprint(h.GPUs))}
	for gpu := range h.GPUs {
		lines = append(lines, fmt.Sprintf("GPU 00000000:%02X:00.0", 2+gpu), field(4, "Product Name", name), field(4, "GPU UUID", UUID(node, gpu)),
			"    GPU Virtualization Mode", field(8, "Virtualization Mode", mode), field(8, "Host VGPU Mode", "N/A"),
			"    vGPU Software Licensed Product", field(8, "Product Name", licensed), field(8, "License Status", status))
	}
	return append(lines, "")
}
