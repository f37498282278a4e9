// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"cmp"
	"slices"
	"strings"
)

// Geometry is how a GPU model can be cut: its memory slices, and the profiles that `nvidia-smi mig -lgip` lists.
type Geometry struct {
	Slices   int       `json:"slices"`
	Profiles []Profile `json:"profiles"`
}

// Profile is one kind of MIG device: where it may begin, how many slices of memory it takes, how often it fits at most.
// Media is what it takes of the media engines: "share" (its usual part), "one" (+me), "all" (+me.all) or "none" (-me).
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

// attributes are what NVML tells of a MIG device (nvmlDeviceGetAttributes).
type attributes struct {
	memoryMiB, sms, compute, copy, decoder, encoder, jpeg, ofa int
}

func (p Profile) attributes() attributes {
	return attributes{p.MemoryMiB, p.SMs, p.Compute, p.Copy, p.Decoder, p.Encoder, p.JPEG, p.OFA}
}

// Profile finds a profile by its name.
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

// extras are what a profile has beside compute and memory: "+me", "+me.all", "-me", "+gfx", or nothing.
func extras(name string) string {
	if at := strings.IndexAny(name, "+-"); at >= 0 {
		return name[at:]
	}
	return ""
}

// plain is the name without its extras.
func plain(name string) string {
	return strings.TrimSuffix(name, extras(name))
}

// label is a profile in names of resources and labels, where a plus is not allowed.
func label(name string) string {
	return strings.ReplaceAll(name, "+", ".")
}

// Fit places MIG devices on an empty GPU, the largest first; false when there is no way to place all of them. The
// driver chooses the place of each, and mig-parted tries every order, so what can be placed will be placed.
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

// mediaFit tells whether the media engines suffice: one device has the extensions, and beside one that has all engines
// every other has none.
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
