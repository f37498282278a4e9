// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"cmp"
	"slices"
	"strings"
)

// Geometry describes the MIG partitioning of a GPU model: its memory slices, and the profiles of `nvidia-smi mig -lgip`.
type Geometry struct {
	Slices   int       `json:"slices"`
	Profiles []Profile `json:"profiles"`
}

// Profile is one type of MIG device: the possible start positions, its number of memory slices, the maximum per GPU.
// Media is its use of the media engines: "share" (the default part), "one" (+me), "all" (+me.all) or "none" (-me).
type Profile struct {
	Name      string `json:"name"`
	Compute   int    `json:"compute"`
	Size      int    `json:"size"`
	Starts    []int  `json:"starts"`
	Most      int    `json:"most"`
	Media     string `json:"media"`
	MemoryMiB int    `json:"memory_mib"`
	SMs       int    `json:"sms"`
	Copy      int    `json:"copy"`
	Decoder   int    `json:"decoder"`
	Encoder   int    `json:"encoder"`
	JPEG      int    `json:"jpeg"`
	OFA       int    `json:"ofa"`
}

// attributes are the attributes that NVML reports for a MIG device (nvmlDeviceGetAttributes).
type attributes struct {
	memoryMiB, sms, compute, copy, decoder, encoder, jpeg, ofa int
}

func (p Profile) attributes() attributes {
	return attributes{p.MemoryMiB, p.SMs, p.Compute, p.Copy, p.Decoder, p.Encoder, p.JPEG, p.OFA}
}

// Profile returns the profile with this name.
func (g *Geometry) Profile(name string) (Profile, bool) {
	if g == nil {
		return Profile{}, false
	}
	at := slices.IndexFunc(g.Profiles, func(p Profile) bool { return p.Name == name })
	if at < 0 {
		return Profile{}, false
	}
	return g.Profiles[at], true
}

// extras returns the suffix of a profile name: "+me", "+me.all", "-me", "+gfx", or an empty string.
func extras(name string) string {
	if at := strings.IndexAny(name, "+-"); at >= 0 {
		return name[at:]
	}
	return ""
}

// plain returns the name without the suffix.
func plain(name string) string {
	return strings.TrimSuffix(name, extras(name))
}

// label returns the profile in names of resources and labels, where a plus sign is not allowed.
func label(name string) string {
	return strings.ReplaceAll(name, "+", ".")
}

// Fit places MIG devices on an empty GPU, largest first; it returns false if not all of them fit. On a real GPU the driver
// chooses the positions, and mig-parted tries every order, so every feasible set of devices can be created.
func (g *Geometry) Fit(counts map[string]int) ([]MIGDevice, bool) {
	var names []string
	for name, count := range counts {
		profile, known := g.Profile(name)
		if !known || count > profile.Most {
			return nil, false
		}
		for range count {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		x, _ := g.Profile(a)
		y, _ := g.Profile(b)
		return cmp.Or(cmp.Compare(y.Size, x.Size), cmp.Compare(y.Compute, x.Compute), cmp.Compare(a, b))
	})
	if !g.mediaFit(names) {
		return nil, false
	}
	return g.place(names, make([]bool, g.Slices), nil)
}

// mediaFit returns whether the media engines suffice: only one device can have the extensions, and beside a device with all
// engines every other device must have none.
func (g *Geometry) mediaFit(names []string) bool {
	takes := map[string]int{}
	for _, name := range names {
		profile, _ := g.Profile(name)
		takes[profile.Media]++
	}
	if takes["all"] > 0 {
		return takes["all"] == 1 && takes["none"] == len(names)-1
	}
	return takes["one"] <= 1
}

func (g *Geometry) place(names []string, taken []bool, placed []MIGDevice) ([]MIGDevice, bool) {
	if len(names) == 0 {
		return placed, true
	}
	profile, _ := g.Profile(names[0])
	for _, start := range profile.Starts {
		end := start + profile.Size
		if end > len(taken) || slices.Contains(taken[start:end], true) {
			continue
		}
		rest := slices.Clone(taken)
		for at := start; at < end; at++ {
			rest[at] = true
		}
		next := append(slices.Clone(placed), MIGDevice{Profile: profile.Name, Start: start})
		if all, fits := g.place(names[1:], rest, next); fits {
			return all, true
		}
	}
	return nil, false
}
