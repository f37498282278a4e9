// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"slices"
	"strings"
	"testing"
)

const parsing = "unable to load config: unable to finalize config: unable to parse config file: error parsing config file: "

func entry(fields string) string {
	return "sharing: {timeSlicing: {resources: [{" + fields + "}]}}"
}

func TestRefusals(t *testing.T) {
	json := parsing + "unmarshal error: error unmarshaling JSON: while decoding JSON: "
	for _, test := range []struct {
		name, config, refusal string
		env                   Environment
		pluginOnly            bool
	}{
		{name: "one replica", config: entry("name: nvidia.com/gpu, replicas: 1"), refusal: json + "number of replicas must be >= 2"},
		{name: "no replica", config: entry("name: nvidia.com/gpu, replicas: 0"), refusal: json + "number of replicas must be >= 2"},
		{name: "fewer than none", config: entry("name: nvidia.com/gpu, replicas: -1"), refusal: json + "number of replicas must be >= 2"},
		{name: "replicas missing", config: entry("name: nvidia.com/gpu"), refusal: json + "no replicas specified"},
		{name: "name missing", config: entry("replicas: 4"), refusal: json + "no resource name specified"},
		{name: "empty list", config: "sharing: {timeSlicing: {resources: []}}", refusal: json + "no resources specified"},
		{name: "bad name", config: entry("name: nvidia.com/GPU, replicas: 2"), refusal: json + "incorrect format for resource name 'nvidia.com/GPU'"},
		{name: "two domains", config: entry("name: nvidia.com/example.com/gpu, replicas: 2"), refusal: json + "incorrect format for resource name 'nvidia.com/example.com/gpu'"},
		{name: "some devices", config: entry("name: nvidia.com/gpu, replicas: 2, devices: some"), refusal: json + "devices set as 'some' but the only valid string input is 'all'"},
		{name: "version", config: "version: v2", refusal: parsing + "unknown version: v2"},
		{name: "mps without root", config: mps4, pluginOnly: true, refusal: "unable to validate flags: using MPS requires --mps-root to be specified"},
		{name: "mps and mixed", config: mps4, pluginOnly: true, env: Environment{MIGStrategy: "mixed", MPSRoot: "/mps"},
			refusal: "unable to validate flags: using --mig-strategy=mixed is not supported with MPS"},
		{name: "device list strategy", config: "flags: {plugin: {deviceListStrategy: paper}}", pluginOnly: true,
			refusal: "unable to validate flags: invalid --device-list-strategy option: invalid strategy: paper"},
		{name: "device id strategy", config: "flags: {plugin: {deviceIDStrategy: name}}", pluginOnly: true,
			refusal: "unable to validate flags: invalid --device-id-strategy option: name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := PluginConfig(test.config, test.env)
			if err == nil || !strings.HasPrefix(err.Error(), "error starting plugins: "+test.refusal) {
				t.Errorf("the plugin says %v, want %q", err, "error starting plugins: "+test.refusal)
			}
			_, err = GFDConfig(test.config, test.env)
			if test.pluginOnly {
				if err != nil {
					t.Errorf("GFD says %v", err)
				}
			} else if err == nil || !strings.HasPrefix(err.Error(), test.refusal) {
				t.Errorf("GFD says %v, want %q", err, test.refusal)
			}
		})
	}
}

func TestDevices(t *testing.T) {
	two := *h200
	two.GPUs = 2
	for _, test := range []struct {
		name, config, resource string
		count                  int
		one                    bool
	}{
		{name: "none", resource: "nvidia.com/gpu", count: 2},
		{name: "time-slicing", config: sharing4, resource: "nvidia.com/gpu", count: 8},
		{name: "renamed", config: sharing4Rename, resource: "nvidia.com/gpu.shared", count: 8},
		{name: "refuses two", config: sharing4Fail, resource: "nvidia.com/gpu", count: 8, one: true},
		{name: "mps", config: mps4, resource: "nvidia.com/gpu", count: 8, one: true},
		{name: "more than MPS can serve is registered all the same", config: strings.Replace(mps4, "4", "49", 1), resource: "nvidia.com/gpu", count: 98, one: true},
		{name: "larger of two entries", config: "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}, {name: nvidia.com/gpu, replicas: 4}]}}", resource: "nvidia.com/gpu", count: 8},
		{name: "rename of one is ignored", config: entry("name: nvidia.com/gpu, replicas: 4, rename: nvidia.com/mine"), resource: "nvidia.com/gpu", count: 8},
		{name: "other resource", config: entry("name: nvidia.com/mig-1g.18gb, replicas: 4"), resource: "nvidia.com/gpu", count: 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			config, err := PluginConfig(test.config, Environment{MPSRoot: "/run/nvidia/mps"})
			if err != nil {
				t.Fatal(err)
			}
			devices, err := Devices("n1", &two, Layout{}, config)
			if err != nil {
				t.Fatal(err)
			}
			if len(devices) != 1 || len(devices[test.resource]) != test.count {
				t.Errorf("devices %v", devices)
			}
			if config.OnePerRequest() != test.one {
				t.Errorf("one per request: %v", config.OnePerRequest())
			}
		})
	}
	if UUID("n1", 0) != UUID("n1", 0) || UUID("n1", 0) == UUID("n1", 1) || len(UUID("n1", 0)) != 40 {
		t.Error("UUIDs are not unique")
	}
}

func TestSelect(t *testing.T) {
	available := map[string]string{"a": "", "b": ""}
	for _, test := range []struct {
		name      string
		selection Selection
		label     string
		available map[string]string
		want, err string
	}{
		{name: "label", label: "b", available: available, want: "b"},
		{name: "label outranks the default", selection: Selection{Default: "a"}, label: "b", available: available, want: "b"},
		{name: "default", selection: Selection{Default: "a"}, available: available, want: "a"},
		{name: "missing label", label: "c", available: available, err: "specified config c does not exist"},
		{name: "missing default", selection: Selection{Default: "c"}, available: available, err: "specified config  does not exist"},
		{name: "empty", selection: Selection{Fallbacks: []string{"empty"}}, available: available},
		{name: "single", selection: Selection{Fallbacks: []string{"named", "single"}}, available: map[string]string{"x": ""}, want: "x"},
		{name: "named", selection: Selection{Fallbacks: []string{"named"}}, available: map[string]string{"x": "", "default": ""}, want: "default"},
		{name: "all fail", selection: Selection{Fallbacks: []string{"named", "single"}}, available: available, err: "no config was set, no default was provided, and all fallbacks failed"},
		{name: "no files", available: map[string]string{}, err: "no configuration files available"},
		{name: "bad strategy", selection: Selection{Fallbacks: []string{"x"}}, available: available, err: "unknown fallback strategy: x"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := test.selection.Select(test.label, test.available)
			if got != test.want || (err == nil) != (test.err == "") || (err != nil && err.Error() != test.err) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestFeatures(t *testing.T) {
	operator := PCIConfig{DeviceClassWhitelist: []string{"02", "0200", "0207", "0300", "0302"}, DeviceLabelFields: []string{"vendor"}}
	plain, err := WorkerConfig("")
	if err != nil {
		t.Fatal(err)
	}
	written, err := WorkerConfig("sources: {pci: {deviceLabelFields: [vendor]}}")
	if err != nil || !slices.Equal(written.DeviceLabelFields, []string{"vendor"}) || !slices.Equal(written.DeviceClassWhitelist, plain.DeviceClassWhitelist) {
		t.Fatalf("%v %v", written, err)
	}
	os := OS{ID: "ubuntu", VersionID: "24.04", Kernel: "6.8.0-79-generic"}
	for _, test := range []struct {
		name    string
		h       *Hardware
		os      OS
		pci     PCIConfig
		present []string
		absent  []string
	}{
		{name: "vendor", h: h200, os: os, pci: operator, present: []string{"pci-10de.present", "pci-8086.present", "system-os_release.VERSION_ID.major"}, absent: []string{"pci-0302_10de.present"}},
		{name: "default", h: h200, os: os, pci: plain, present: []string{"pci-0302_10de.present"}, absent: []string{"pci-10de.present", "pci-0200_8086.present"}},
		{name: "no GPU", os: os, pci: operator, present: []string{"pci-8086.present", "kernel-version.revision"}, absent: []string{"pci-10de.present"}},
		{name: "no os-release", h: h200, pci: operator, absent: []string{"system-os_release.ID"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			labels := NodeFeatures("n1", "6.8.0", test.h, test.os, test.pci, nil)["labels"].(map[string]any)
			for _, label := range test.present {
				if labels["feature.node.kubernetes.io/"+label] == nil {
					t.Errorf("%s is missing", label)
				}
			}
			for _, label := range test.absent {
				if labels["feature.node.kubernetes.io/"+label] != nil {
					t.Errorf("%s is there", label)
				}
			}
		})
	}
}
