// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"errors"
	"fmt"
	"strconv"

	parted "github.com/NVIDIA/mig-parted/api/spec/v1"
	"github.com/NVIDIA/mig-parted/pkg/types"
	"sigs.k8s.io/yaml"
)

// MIGConfigKey is the key in the MIG manager's ConfigMap, and the name of the file that it reads.
const MIGConfigKey = "config.yaml"

const nvidiaVendor = 0x10de

// MIGEntries are the entries of one configuration, in order.
type MIGEntries = parted.MigConfigSpecSlice

// MIGConfigs parses a mig-parted config file with NVIDIA's own parser.
func MIGConfigs(text string) (*parted.Spec, error) {
	var spec parted.Spec
	if err := yaml.Unmarshal([]byte(text), &spec); err != nil {
		return nil, fmt.Errorf("error parsing config file: unmarshal error: %w", err)
	}
	return &spec, nil
}

// MIGConfig returns one configuration from a mounted ConfigMap, like `nvidia-mig-parted assert --valid-config`.
func MIGConfig(mounted map[string]string, name string) (MIGEntries, error) {
	text, there := mounted[MIGConfigKey]
	if !there {
		return nil, fmt.Errorf("error parsing config file: read error: open /mig-parted-config/%s: no such file or directory", MIGConfigKey)
	}
	spec, err := MIGConfigs(text)
	if err != nil {
		return nil, err
	}
	entries, there := spec.MigConfigs[name]
	switch {
	case there:
		return entries, nil
	case name == "" && len(spec.MigConfigs) > 1:
		return nil, errors.New("error selecting MIG config: missing required flag 'selected-config' when more than one config available")
	}
	return nil, fmt.Errorf("error selecting MIG config: selected mig-config not present: %s", name)
}

// MIGParted simulates mig-parted on one node's GPUs; Layout is its result. NoReset means that the GPUs cannot be reset, as
// in some clouds, so that every change of the MIG mode needs a reboot. Partial creates only the first device of each GPU
// without an error.
type MIGParted struct {
	Hardware *Hardware
	Layout   Layout
	Use      Usage
	NoReset  bool
	Partial  bool
}

// each calls apply for the GPUs that the entries select, in the order of the entries.
func (p *MIGParted) each(entries MIGEntries, apply func(entry parted.MigConfigSpec, gpu int) error) error {
	pci, err := strconv.ParseUint(p.Hardware.PCI, 16, 16)
	if err != nil {
		return fmt.Errorf("error enumerating GPUs: PCI id %q: %w", p.Hardware.PCI, err)
	}
	device := types.NewDeviceID(uint16(pci), nvidiaVendor)
	for _, entry := range entries {
		for gpu := range p.Hardware.GPUs {
			if !entry.MatchesDeviceFilter(device) || !entry.MatchesDevices(gpu) {
				continue
			}
			if err := apply(entry, gpu); err != nil {
				return err
			}
		}
	}
	return nil
}

var errDiffers = errors.New("assertion failure: selected configuration not currently applied")

// AssertMode returns whether every selected GPU has the desired MIG mode.
func (p *MIGParted) AssertMode(entries MIGEntries) bool {
	return nil == p.each(entries, func(entry parted.MigConfigSpec, gpu int) error {
		if entry.MigEnabled != p.Layout.Enabled(gpu) {
			return errDiffers
		}
		return nil
	})
}

// AssertConfig returns whether all GPUs have the desired devices: the last matching entry applies, and all must match one.
func (p *MIGParted) AssertConfig(entries MIGEntries) bool {
	same := map[int]bool{}
	err := p.each(entries, func(entry parted.MigConfigSpec, gpu int) error {
		if !entry.MigEnabled && !p.Layout.Enabled(gpu) {
			same[gpu] = true
			return nil
		}
		if !p.Layout.Enabled(gpu) {
			return errors.New("error getting MIGConfig: error asserting MIG enabled: MIG mode disabled")
		}
		same[gpu] = p.current(gpu).Equals(entry.MigDevices)
		return nil
	})
	if err != nil {
		return false
	}
	for gpu := range p.Hardware.GPUs {
		if !same[gpu] {
			return false
		}
	}
	return true
}

// current returns the number of devices of a GPU by profile, like mig-parted.
func (p *MIGParted) current(gpu int) types.MigConfig {
	config := types.MigConfig{}
	for _, s := range p.Layout.GPUs[gpu] {
		config[s.Profile]++
	}
	return config
}
