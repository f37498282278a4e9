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

// MIGConfigKey is the key of the MIG manager's ConfigMap, and the name of the file that it reads.
const MIGConfigKey = "config.yaml"

const nvidiaVendor = 0x10de

// MIGEntries are what one configuration says, in order.
type MIGEntries = parted.MigConfigSpecSlice

// MIGConfigs lets NVIDIA's own parser read a file of mig-parted.
func MIGConfigs(text string) (*parted.Spec, error) {
	var spec parted.Spec
	if err := yaml.Unmarshal([]byte(text), &spec); err != nil {
		return nil, fmt.Errorf("error parsing config file: unmarshal error: %w", err)
	}
	return &spec, nil
}

// MIGConfig finds one configuration in a mounted ConfigMap, as `nvidia-mig-parted assert --valid-config` does.
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

// MIGParted is mig-parted at work on one node's GPUs; Layout is what it makes of them. NoReset is a machine whose GPUs
// cannot be reset, as in some clouds, so that every change of the MIG mode waits for a reboot. Partial makes only the first
// device of each GPU, and notices nothing.
type MIGParted struct {
	Hardware *Hardware
	Layout   Layout
	Use      Usage
	NoReset  bool
	Partial  bool
}

// each visits the GPUs that entries name, entry by entry: a later one sees what an earlier one has done.
func (p *MIGParted) each(entries MIGEntries, visit func(entry parted.MigConfigSpec, gpu int) error) error {
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
			if err := visit(entry, gpu); err != nil {
				return err
			}
		}
	}
	return nil
}

var errDiffers = errors.New("assertion failure: selected configuration not currently applied")

// AssertMode tells whether every GPU that is named has the MIG mode that is wanted.
func (p *MIGParted) AssertMode(entries MIGEntries) bool {
	return nil == p.each(entries, func(entry parted.MigConfigSpec, gpu int) error {
		if entry.MigEnabled != p.Layout.Enabled(gpu) {
			return errDiffers
		}
		return nil
	})
}

// AssertConfig tells whether all GPUs are as wanted: the last entry that names one decides, and all must be named.
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

// current counts the devices of a GPU as mig-parted does.
func (p *MIGParted) current(gpu int) types.MigConfig {
	config := types.MigConfig{}
	for _, s := range p.Layout.GPUs[gpu] {
		config[s.Profile]++
	}
	return config
}
