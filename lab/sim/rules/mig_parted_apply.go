// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	parted "github.com/NVIDIA/mig-parted/api/spec/v1"
	"github.com/NVIDIA/mig-parted/pkg/types"
)

// inUse is NVML's error for a GPU or MIG device that a process holds.
const inUse = "In use by another client"

// computeProfiles are the compute slices of NVML's plain profiles, by number, for both GPU instances and compute instances
// (NVML_COMPUTE_INSTANCE_PROFILE_* in nvml.h).
var computeProfiles = []int{1, 2, 3, 4, 7, 8, 6}

var computeInstance = regexp.MustCompile(`^\d+c\.`)

// ApplyMode is `nvidia-mig-parted apply --mode-only`: it clears every selected GPU with MIG on, then sets the modes. Up to
// Ampere a mode change needs a reset of all GPUs; since Hopper it takes effect immediately.
func (p *MIGParted) ApplyMode(entries MIGEntries) error {
	return withHooks(p.applyMode(entries))
}

// Apply is `nvidia-mig-parted apply`: it changes modes that differ, then devices.
func (p *MIGParted) Apply(entries MIGEntries) error {
	return withHooks(p.apply(entries))
}

// withHooks formats an error like the last line of mig-parted's log, followed by the reason from the line before.
func withHooks(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("error applying MIG configuration with hooks: %w", err)
}

func (p *MIGParted) applyMode(entries MIGEntries) error {
	if p.AssertMode(entries) {
		return nil
	}
	p.Layout = p.Layout.Clone()
	reset := p.NoReset || needsReset(p.Hardware)
	err := p.each(entries, func(entry parted.MigConfigSpec, gpu int) error {
		if p.Hardware.MIG == nil {
			return notMIGCapable(entry, "mode")
		}
		if p.Layout.Enabled(gpu) {
			if err := p.clear(gpu); err != nil {
				return fmt.Errorf("error clearing existing MIG configurations: %w", err)
			}
		}
		delete(p.Layout.Pending, gpu)
		switch {
		case entry.MigEnabled == p.Layout.Enabled(gpu):
		case reset:
			p.Layout.Pending[gpu] = entry.MigEnabled
		case p.Use.Busy(gpu):
			return errors.New("error setting MIG mode: error setting Mig mode: " + inUse)
		default:
			p.set(gpu, entry.MigEnabled)
		}
		return nil
	})
	if err != nil || len(p.Layout.Pending) == 0 {
		return err
	}
	return p.reset()
}

func needsReset(h *Hardware) bool {
	major, _, _ := strings.Cut(h.Compute, ".")
	return len(major) == 1 && major < "9"
}

func notMIGCapable(entry parted.MigConfigSpec, what string) error {
	if entry.MatchesAllDevices() || !entry.MigEnabled {
		return nil
	}
	return fmt.Errorf("cannot set MIG %s on non MIG-capable GPU", what)
}

func (p *MIGParted) set(gpu int, on bool) {
	if on {
		p.Layout.GPUs[gpu] = []MIGDevice{}
	} else {
		delete(p.Layout.GPUs, gpu)
	}
}

// reset resets all GPUs of the node: pending modes take effect, and all MIG devices are deleted.
func (p *MIGParted) reset() error {
	if p.NoReset {
		return errors.New("error resetting all GPUs: exit status 3: resetting the GPUs is not supported on this machine")
	}
	for gpu := range p.Hardware.GPUs {
		if p.Use.Busy(gpu) {
			return errors.New("error resetting all GPUs: exit status 255: " + inUse)
		}
	}
	p.Layout = p.Layout.AfterReboot().Clone()
	return nil
}

// clear destroys the devices of a GPU in the order of their profiles, and stops at the first one in use.
func (p *MIGParted) clear(gpu int) error {
	left := slices.Clone(p.Layout.GPUs[gpu])
	slices.SortStableFunc(left, func(a, b MIGDevice) int { return p.order(a.Profile) - p.order(b.Profile) })
	for len(left) > 0 {
		if p.Use.Holds(gpu, left[0]) {
			p.Layout.GPUs[gpu] = p.sorted(left)
			profile, _ := p.Hardware.MIG.Profile(left[0].Profile)
			compute := slices.Index(computeProfiles, profile.Compute)
			return fmt.Errorf("error walking gpu instances for '%d': error walking compute instances for '%d': "+
				"error destroying Compute instance for profile '(%d, 0)': %s", gpu, p.order(profile.Name), compute, inUse)
		}
		left = left[1:]
	}
	p.Layout.GPUs[gpu] = []MIGDevice{}
	return nil
}

// sorted returns the devices of a GPU in the order of nvidia-smi: largest first.
func (p *MIGParted) sorted(devices []MIGDevice) []MIGDevice {
	ordered := slices.Clone(devices)
	slices.SortStableFunc(ordered, func(a, b MIGDevice) int {
		x, _ := p.Hardware.MIG.Profile(a.Profile)
		y, _ := p.Hardware.MIG.Profile(b.Profile)
		return cmp.Or(cmp.Compare(y.Size, x.Size), cmp.Compare(y.Compute, x.Compute), cmp.Compare(a.Start, b.Start))
	})
	return ordered
}

// order returns NVML's number of a GPU instance profile (NVML_GPU_INSTANCE_PROFILE_* in nvml.h).
func (p *MIGParted) order(name string) int {
	profile, _ := p.Hardware.MIG.Profile(name)
	double := extras(name) == "" && slices.ContainsFunc(p.Hardware.MIG.Profiles, func(other Profile) bool {
		return extras(other.Name) == "" && other.Compute == profile.Compute && other.Size < profile.Size
	})
	switch first := map[string]int{"+me": 0x7, "+gfx": 0xA, "-me": 0xD, "+me.all": 0xF}[extras(name)]; {
	case double: // more memory than usual for its compute slices
		return 0x9
	case first > 0 && profile.Compute == 4:
		return first + 2
	case first > 0:
		return first + profile.Compute - 1
	default:
		return slices.Index(computeProfiles, profile.Compute)
	}
}

func (p *MIGParted) apply(entries MIGEntries) error {
	if err := p.applyMode(entries); err != nil {
		return err
	}
	if p.AssertConfig(entries) {
		return nil
	}
	p.Layout = p.Layout.Clone()
	return p.each(entries, func(entry parted.MigConfigSpec, gpu int) error {
		switch {
		case p.Hardware.MIG == nil:
			return notMIGCapable(entry, "config")
		case entry.MigEnabled && !p.Layout.Enabled(gpu):
			return errors.New("unable to apply MIG config with MIG mode disabled")
		case !entry.MigEnabled && p.Layout.Enabled(gpu):
			return errors.New("MIG mode is currently enabled, but the configuration specifies it should be disabled")
		case !entry.MigEnabled || p.current(gpu).Equals(entry.MigDevices):
			return nil
		}
		if err := p.createDevices(gpu, entry.MigDevices); err != nil {
			return fmt.Errorf("error setting MIGConfig: error attempting multiple config orderings: all orderings failed: %w", err)
		}
		return nil
	})
}

// createDevices creates the devices of one GPU. If the list contains a profile that this model lacks, mig-parted clears the
// GPU, creates no device and reports success (pkg/types/mig_config.go, Flatten; gpu-operator #603).
func (p *MIGParted) createDevices(gpu int, counts types.MigConfig) error {
	if p.Use.All {
		return errors.New("error creating GPU instance: " + inUse)
	}
	if err := p.clear(gpu); err != nil {
		return fmt.Errorf("error clearing MigConfig: %w", err)
	}
	for name := range counts {
		if computeInstance.MatchString(name) {
			return fmt.Errorf("error creating Compute instance for '%s': the lab's GPUs have no compute instances of their own", name)
		}
		if _, known := p.Hardware.MIG.Profile(name); !known {
			return nil
		}
	}
	devices, fits := p.Hardware.MIG.Fit(counts)
	if !fits {
		return errors.New("error creating GPU instance: Insufficient Resources")
	}
	p.Layout.GPUs[gpu] = p.sorted(devices)
	if p.Partial {
		p.Layout.GPUs[gpu] = p.Layout.GPUs[gpu][:min(1, len(devices))]
	}
	return nil
}
