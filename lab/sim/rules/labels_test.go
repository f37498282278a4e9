// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

var h200 = &Hardware{Product: "NVIDIA H200", GPUs: 1, MemoryMiB: 143771, Family: "hopper", Compute: "9.0", MIGCapable: true, Driver: "580.159.04", CUDA: "13.0", PCI: "2335"}

const (
	sharing4       = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
	sharing4Rename = "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
	sharing4Fail   = "sharing: {timeSlicing: {failRequestsGreaterThanOne: true, resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
	mps4           = "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
	mps4Rename     = "sharing: {mps: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
)

// live is the output of gpu-feature-discovery v0.19.0 on a real H200, driver 580.159.04, without a config.
var live = map[string]string{
	"cuda.driver-version.full": "580.159.04", "cuda.driver-version.major": "580", "cuda.driver-version.minor": "159", "cuda.driver-version.revision": "04",
	"cuda.driver.major": "580", "cuda.driver.minor": "159", "cuda.driver.rev": "04",
	"cuda.runtime-version.full": "13.0", "cuda.runtime-version.major": "13", "cuda.runtime-version.minor": "0", "cuda.runtime.major": "13", "cuda.runtime.minor": "0",
	"gpu.compute.major": "9", "gpu.compute.minor": "0", "gpu.count": "1", "gpu.family": "hopper", "gpu.machine": "unknown", "gpu.memory": "143771",
	"gpu.mode": "compute", "gpu.product": "NVIDIA-H200", "gpu.replicas": "1", "gpu.sharing-strategy": "none",
	"mig.capable": "true", "mps.capable": "false", "vgpu.present": "false",
}

func TestLabelsOfALiveH200(t *testing.T) {
	for _, test := range []struct {
		name, config, strategy string
		differs                map[string]string
	}{
		{name: "no config"},
		{name: "version alone", config: "version: v1"},
		{name: "time-slicing", config: sharing4, differs: map[string]string{"gpu.product": "NVIDIA-H200-SHARED", "gpu.replicas": "4", "gpu.sharing-strategy": "time-slicing"}},
		{name: "any case", config: strings.ToLower(sharing4), differs: map[string]string{"gpu.product": "NVIDIA-H200-SHARED", "gpu.replicas": "4", "gpu.sharing-strategy": "time-slicing"}},
		{name: "renamed", config: sharing4Rename, differs: map[string]string{"gpu.replicas": "4", "gpu.sharing-strategy": "time-slicing"}},
		{name: "no trace of the refusal", config: sharing4Fail, differs: map[string]string{"gpu.product": "NVIDIA-H200-SHARED", "gpu.replicas": "4", "gpu.sharing-strategy": "time-slicing"}},
		{name: "mps", config: mps4, differs: map[string]string{"gpu.product": "NVIDIA-H200-SHARED", "gpu.replicas": "4", "gpu.sharing-strategy": "mps", "mps.capable": "true"}},
		{name: "mps renamed", config: mps4Rename, differs: map[string]string{"gpu.replicas": "4", "gpu.sharing-strategy": "mps", "mps.capable": "true"}},
		{name: "single, MIG off", strategy: "single", differs: map[string]string{"mig.strategy": "single"}},
		{name: "mixed, MIG off", strategy: "mixed", differs: map[string]string{"mig.strategy": "mixed"}},
		{name: "unknown resource", config: "sharing: {timeSlicing: {resources: [{name: nvidia.com/foo, replicas: 4}]}}"},
		{name: "first of two entries", config: "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}, {name: nvidia.com/gpu, replicas: 4}]}}",
			differs: map[string]string{"gpu.product": "NVIDIA-H200-SHARED", "gpu.replicas": "2", "gpu.sharing-strategy": "time-slicing"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			config, err := GFDConfig(test.config, Environment{MIGStrategy: test.strategy})
			if err != nil {
				t.Fatal(err)
			}
			wanted := maps.Clone(live)
			maps.Copy(wanted, test.differs)
			got, err := Labels(h200, Layout{}, config)
			if err != nil {
				t.Fatal(err)
			}
			for key, value := range wanted {
				if got["nvidia.com/"+key] != value {
					t.Errorf("%s = %q, want %q", key, got["nvidia.com/"+key], value)
				}
			}
			if len(got) != len(wanted) {
				t.Errorf("%d labels, want %d: %v", len(got), len(wanted), slices.Sorted(maps.Keys(got)))
			}
		})
	}
}

func TestLabelsOfAGuest(t *testing.T) {
	guest := *h200
	guest.Product, guest.MIGCapable, guest.Machine = "GRID A100-10C (v2)", false, "VMware20,1"
	guest.VGPU = &VGPU{HostDriver: "550.163.02"}
	config, err := GFDConfig("", Environment{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Labels(&guest, Layout{}, config)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"vgpu.present": "true", "vgpu.host-driver-version": "550.163.02", "vgpu.host-driver-branch": "r550_00",
		"gpu.product": "GRID-A100-10C-v2", "gpu.machine": "VMware201", "gpu.mode": "compute", "mig.capable": "false"} {
		if got["nvidia.com/"+key] != want {
			t.Errorf("%s = %q, want %q", key, got["nvidia.com/"+key], want)
		}
	}
}

func TestAVGPUWithDisplaysIsAVGAController(t *testing.T) {
	guest := *h200
	guest.Product, guest.MemoryMiB, guest.PCIClass, guest.VGPU = "NVIDIA A16-4Q", 4096, graphicsClass, &VGPU{HostDriver: "550.54.16", Profile: "A16-4Q"}
	config, err := GFDConfig("", Environment{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Labels(&guest, Layout{}, config)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"gpu.product": "NVIDIA-A16-4Q", "gpu.memory": "4096", "gpu.mode": "graphics"} {
		if got["nvidia.com/"+key] != want {
			t.Errorf("%s = %q, want %q", key, got["nvidia.com/"+key], want)
		}
	}
	if class := pciDevices(&guest)[1]["class"]; class != graphicsClass {
		t.Errorf("class %v", class)
	}
	if output := strings.Join(NvidiaSMIQuery("a", &guest, "Licensed"), "\n"); !strings.Contains(output, ": NVIDIA A16-4Q") {
		t.Errorf("output %s", output)
	}
}
