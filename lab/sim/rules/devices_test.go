// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"maps"
	"strings"
	"testing"
)

// MIG layouts of a machine with two GPUs.
var (
	twice = func(devices ...MIGDevice) Layout {
		return Layout{GPUs: map[int][]MIGDevice{0: devices, 1: devices}}
	}
	uniform  = twice(MIGDevice{"3g.40gb", 0}, MIGDevice{"3g.40gb", 4})
	balanced = twice(MIGDevice{"3g.40gb", 4}, MIGDevice{"2g.20gb", 0}, MIGDevice{"1g.10gb", 2}, MIGDevice{"1g.10gb", 3})
	oneCut   = Layout{GPUs: map[int][]MIGDevice{0: {{"3g.40gb", 0}, {"3g.40gb", 4}}}}
	media    = twice(MIGDevice{"1g.10gb+me", 0}, MIGDevice{"1g.10gb", 1})
	empty    = twice()
)

func shared(name string) string {
	return "sharing: {timeSlicing: {resources: [{name: " + name + ", replicas: 4}]}}"
}

func TestDevicesUnderMIG(t *testing.T) {
	const mixed3 = "nvidia.com/mig-3g.40gb"
	for _, test := range []struct {
		name, strategy, config string
		layout                 Layout
		want                   map[string]int
		err                    string
	}{
		{name: "none sees whole GPUs", strategy: "none", layout: uniform, want: map[string]int{fullGPU: 2}},
		{name: "single", strategy: "single", layout: uniform, want: map[string]int{fullGPU: 4}},
		{name: "single by the file", config: "flags: {migStrategy: single}", layout: uniform, want: map[string]int{fullGPU: 4}},
		{name: "the environment outranks the file", strategy: "mixed", config: "flags: {migStrategy: single}", layout: uniform, want: map[string]int{mixed3: 4}},
		{name: "single, MIG off", strategy: "single", want: map[string]int{fullGPU: 2}},
		{name: "single, shared", strategy: "single", config: shared(fullGPU), layout: uniform, want: map[string]int{fullGPU: 16}},
		{name: "single, shared under the name that mixed has", strategy: "single", config: shared(mixed3), layout: uniform, want: map[string]int{fullGPU: 4}},
		{name: "mixed", strategy: "mixed", layout: balanced, want: map[string]int{mixed3: 2, "nvidia.com/mig-2g.20gb": 2, "nvidia.com/mig-1g.10gb": 4}},
		{name: "mixed, one shared", strategy: "mixed", config: shared("nvidia.com/mig-1g.10gb"), layout: balanced,
			want: map[string]int{mixed3: 2, "nvidia.com/mig-2g.20gb": 2, "nvidia.com/mig-1g.10gb": 16}},
		{name: "mixed, shared and renamed", strategy: "mixed", config: strings.Replace(shared(mixed3), "resources", "renameByDefault: true, resources", 1), layout: uniform,
			want: map[string]int{mixed3 + ".shared": 16}},
		{name: "mixed beside whole GPUs", strategy: "mixed", layout: oneCut, want: map[string]int{fullGPU: 1, mixed3: 2}},
		{name: "mixed, a profile with extras is taken for the plain one", strategy: "mixed", layout: media, want: map[string]int{"nvidia.com/mig-1g.10gb": 4}},
		{name: "mixed, on and empty", strategy: "mixed", layout: empty, want: map[string]int{}},
		{name: "single, on and empty", strategy: "single", layout: empty,
			err: "invalid MIG configuration: at least one device with migEnabled=true was not configured correctly: error visiting device: device 0 has no MIG devices configured"},
		{name: "single, several profiles", strategy: "single", layout: balanced, err: "error visiting devices: error visiting device: error visiting device: error visiting MIG device: error visiting MIG device: more than one MIG device type present on node"},
		{name: "single, not all cut", strategy: "single", layout: oneCut, err: "all devices on the node must be configured with the same migEnabled value"},
		{name: "MPS", strategy: "single", config: mps4, layout: uniform, err: "failed to create plugin: sharing using MPS is not supported for MIG devices"},
		{name: "MPS of whole GPUs that are cut", strategy: "none", config: mps4, layout: uniform, want: map[string]int{fullGPU: 8}},
	} {
		t.Run(test.name, func(t *testing.T) {
			config, err := PluginConfig(test.config, Environment{MIGStrategy: test.strategy, MPSRoot: "/run/nvidia/mps"})
			if err != nil {
				t.Fatal(err)
			}
			devices, err := Devices("n1", a100(2), test.layout, config)
			if test.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), "error starting plugins: error getting plugins: unable to create plugins: ") || !strings.HasSuffix(err.Error(), test.err) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			counts, ids := map[string]int{}, map[string]bool{}
			for resource, of := range devices {
				counts[resource] = len(of)
				for _, id := range of {
					ids[id] = true
				}
			}
			total := 0
			for _, count := range counts {
				total += count
			}
			if !maps.Equal(counts, test.want) || len(ids) != total {
				t.Errorf("%v of %d ids", counts, len(ids))
			}
		})
	}
}

func TestMPSConfig(t *testing.T) {
	volta := a100(1)
	volta.Compute, volta.MIG = "7.0", nil
	replicas := func(count string) string { return strings.Replace(mps4, "4", count, 1) }
	for _, test := range []struct {
		name, config, strategy string
		h                      *Hardware
		layout                 Layout
		want, err              string
	}{
		{name: "shares", config: mps4, want: "nvidia.com/gpu"},
		{name: "renamed", config: mps4Rename, want: "nvidia.com/gpu.shared"},
		{name: "no config"},
		{name: "time-slicing", config: sharing4},
		{name: "other resource", config: strings.Replace(mps4, fullGPU, "nvidia.com/foo", 1)},
		{name: "the most", config: replicas("48"), want: "nvidia.com/gpu"},
		{name: "too many", config: replicas("49"), err: "error starting plugins: error getting daemons: invalid MPS configuration: invalid device maximum allowed replicas exceeded: 49 > 48"},
		{name: "the most of Volta", config: replicas("16"), h: volta, want: "nvidia.com/gpu"},
		{name: "too many for Volta", config: replicas("17"), h: volta, err: "error starting plugins: error getting daemons: invalid MPS configuration: invalid device maximum allowed replicas exceeded: 17 > 16"},
		{name: "MIG devices, with a warning", config: mps4, strategy: "single", layout: uniform, want: "nvidia.com/gpu"},
		{name: "not all cut", config: mps4, strategy: "single", layout: oneCut,
			err: "error starting plugins: error getting daemons: error building device map: error building device map from config.resources: all devices on the node must be configured with the same migEnabled value"},
		{name: "bad", config: replicas("1"), err: "error starting plugins: " + parsing + "unmarshal error: error unmarshaling JSON: while decoding JSON: number of replicas must be >= 2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.h == nil {
				test.h = a100(2)
			}
			_, served, err := MPSConfig(test.config, Environment{MIGStrategy: test.strategy}, test.h, test.layout)
			if (err == nil) != (test.err == "") || (err != nil && err.Error() != test.err) || strings.Join(served, " ") != test.want {
				t.Errorf("%v, %v", served, err)
			}
		})
	}
}

func TestSingleComparesWhatDevicesHave(t *testing.T) {
	plain := Profile{Name: "1g.24gb", Compute: 1, Size: 3, Starts: []int{0, 3, 6, 9}, Most: 4, MemoryMiB: 23500, SMs: 47, Decoder: 1}
	graphics := plain
	graphics.Name = "1g.24gb+gfx"
	h := &Hardware{Product: "NVIDIA RTX-PRO-6000", GPUs: 1, MIG: &Geometry{Slices: 12, Profiles: []Profile{plain, graphics}}}
	layout := Layout{GPUs: map[int][]MIGDevice{0: {{plain.Name, 0}, {graphics.Name, 3}}}}
	config, err := PluginConfig("", Environment{MIGStrategy: "single"})
	if err != nil {
		t.Fatal(err)
	}
	devices, err := Devices("n", h, layout, config)
	if err != nil || len(devices[fullGPU]) != 2 {
		t.Errorf("%v, %v", devices, err)
	}
	labels, err := Labels(h, layout, config)
	if err != nil || labels["nvidia.com/gpu.product"] != "NVIDIA-RTX-PRO-6000-MIG-INVALID" {
		t.Errorf("%v, %v", labels, err)
	}
}
