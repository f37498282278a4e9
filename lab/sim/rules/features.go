// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// PCIConfig is the part of nfd-worker's config that controls PCI labels.
type PCIConfig struct {
	DeviceClassWhitelist []string `json:"deviceClassWhitelist"`
	DeviceLabelFields    []string `json:"deviceLabelFields"`
}

// CustomRule is a rule of nfd-worker's source custom; of its matchers only the existence of loaded kernel modules is supported.
type CustomRule struct {
	Labels        map[string]string `json:"labels"`
	MatchFeatures []struct {
		Feature          string `json:"feature"`
		MatchExpressions map[string]struct {
			Op string `json:"op"`
		} `json:"matchExpressions"`
	} `json:"matchFeatures"`
}

// WorkerRules parses the custom rules in nfd-worker.conf.
func WorkerRules(text string) ([]CustomRule, error) {
	conf := struct {
		Sources struct {
			Custom []CustomRule `json:"custom"`
		} `json:"sources"`
	}{}
	err := yaml.Unmarshal([]byte(text), &conf)
	return conf.Sources.Custom, err
}

// matches returns whether all features of a rule are those of a node with these kernel modules.
func (c CustomRule) matches(modules []string) bool {
	for _, matcher := range c.MatchFeatures {
		for name, expression := range matcher.MatchExpressions {
			if matcher.Feature != "kernel.loadedmodule" || expression.Op != "Exists" || !slices.Contains(modules, name) {
				return false
			}
		}
	}
	return len(c.MatchFeatures) > 0
}

// WorkerConfig parses nfd-worker.conf, with NFD's defaults.
func WorkerConfig(text string) (PCIConfig, error) {
	pci := PCIConfig{DeviceClassWhitelist: []string{"03", "0b40", "12"}, DeviceLabelFields: []string{"class", "vendor"}}
	conf := struct {
		Sources struct {
			PCI *PCIConfig `json:"pci"`
		} `json:"sources"`
	}{}
	conf.Sources.PCI = &pci
	if err := yaml.Unmarshal([]byte(text), &conf); err != nil {
		return PCIConfig{}, err
	}
	return pci, nil
}

var (
	cpuFlags     = []string{"ADX", "AESNI", "AVX", "AVX2", "AVX512BW", "AVX512DQ", "AVX512F", "AVX512VL", "BMI1", "BMI2", "FMA3", "MOVBE", "RDSEED", "SHA", "SSE4", "SSE42", "VAES"}
	versionParts = regexp.MustCompile(`^(\d+)(\.(\d+))?(\..*)?$`)
	kernelParts  = regexp.MustCompile(`^(\d+)(\.(\d+))?(\.(\d+))?(-.*)?$`)
)

// NodeFeatures returns the spec of the NodeFeature that nfd-worker v0.19 publishes for this node: the discovered features,
// and the labels derived from them.
func NodeFeatures(node, kernel string, h *Hardware, o OS, pci PCIConfig, custom []CustomRule) map[string]any {
	if o.Kernel != "" {
		kernel = o.Kernel
	}
	labels := map[string]any{"cpu-hardware_multithreading": "true", "memory-numa": "true", "storage-nonrotationaldisk": "true"}
	model := map[string]any{"family": "6", "id": "143", "vendor_id": "Intel"}
	for key, value := range model {
		labels["cpu-model."+key] = value
	}
	flags := map[string]any{}
	for _, flag := range cpuFlags {
		flags[flag] = map[string]any{}
		labels["cpu-cpuid."+flag] = "true"
	}
	version := kernelVersion(kernel)
	for key, value := range version {
		labels["kernel-version."+key] = value
	}
	release := osRelease(o)
	for _, key := range []string{"ID", "VERSION_ID", "VERSION_ID.major", "VERSION_ID.minor", "OSTREE_VERSION"} {
		if value, has := release[key]; has {
			labels["system-os_release."+key] = value
		}
	}
	modules := map[string]any{}
	loaded := strings.FieldsFunc(o.Modules, func(c rune) bool { return c == ',' })
	for _, module := range loaded {
		modules[module] = map[string]any{}
	}
	for _, rule := range custom {
		if !rule.matches(loaded) {
			continue
		}
		for key, value := range rule.Labels {
			labels[key] = value
		}
	}
	devices := pciDevices(h)
	for _, label := range pciLabels(devices, pci) {
		labels["pci-"+label] = "true"
	}
	prefixed := map[string]any{}
	for key, value := range labels {
		prefixed["feature.node.kubernetes.io/"+key] = value
	}
	attributes := map[string]any{
		"cpu.model":      elements(model),
		"cpu.topology":   elements(map[string]any{"hardware_multithreading": "true"}),
		"kernel.version": elements(version),
		"memory.numa":    elements(map[string]any{"is_numa": "true", "node_count": "2"}),
		"system.name":    elements(map[string]any{"nodename": node}),
	}
	if len(release) > 0 {
		attributes["system.osrelease"] = elements(release)
	}
	instances := []any{}
	for _, device := range devices {
		instances = append(instances, map[string]any{"attributes": device})
	}
	return map[string]any{
		"labels": prefixed,
		"features": map[string]any{
			"flags":      map[string]any{"cpu.cpuid": elements(flags), "kernel.loadedmodule": elements(modules)},
			"attributes": attributes,
			"instances":  map[string]any{"pci.device": map[string]any{"elements": instances}},
		},
	}
}

func elements(of map[string]any) map[string]any {
	return map[string]any{"elements": of}
}

func kernelVersion(full string) map[string]any {
	version := map[string]any{}
	if full == "" {
		return version
	}
	version["full"] = full
	if m := kernelParts.FindStringSubmatch(full); m != nil {
		for key, value := range map[string]string{"major": m[1], "minor": m[3], "revision": m[5]} {
			if value != "" {
				version[key] = value
			}
		}
	}
	return version
}

func osRelease(o OS) map[string]any {
	release := map[string]any{}
	for key, value := range map[string]string{"ID": o.ID, "VERSION_ID": o.VersionID, "OSTREE_VERSION": o.OSTree} {
		if value != "" {
			release[key] = value
		}
	}
	if m := versionParts.FindStringSubmatch(o.VersionID); m != nil {
		release["VERSION_ID.major"] = m[1]
		if m[3] != "" {
			release["VERSION_ID.minor"] = m[3]
		}
	}
	return release
}

// pciDevices returns a network card, which every node has, and the GPUs.
func pciDevices(h *Hardware) []map[string]any {
	devices := []map[string]any{pciDevice("0200", "8086", "1592")}
	if h == nil {
		return devices
	}
	for range h.GPUs {
		devices = append(devices, pciDevice(cmp.Or(h.PCIClass, computeClass), "10de", strings.ToLower(h.PCI)))
	}
	return devices
}

func pciDevice(class, vendor, device string) map[string]any {
	return map[string]any{"class": class, "vendor": vendor, "device": device, "subsystem_vendor": vendor, "subsystem_device": "0000"}
}

func pciLabels(devices []map[string]any, pci PCIConfig) []string {
	var fields []string
	for _, field := range []string{"class", "vendor", "device", "subsystem_vendor", "subsystem_device"} {
		if slices.Contains(pci.DeviceLabelFields, field) {
			fields = append(fields, field)
		}
	}
	if len(fields) == 0 {
		fields = []string{"class", "vendor"}
	}
	var labels []string
	for _, device := range devices {
		listed := slices.ContainsFunc(pci.DeviceClassWhitelist, func(class string) bool {
			return strings.HasPrefix(device["class"].(string), strings.ToLower(class))
		})
		if !listed {
			continue
		}
		values := make([]string, len(fields))
		for i, field := range fields {
			values[i] = device[field].(string)
		}
		labels = append(labels, strings.Join(values, "_")+".present")
	}
	return labels
}
