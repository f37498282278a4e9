// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// typeA returns the geometry of GPUs with 7 compute and 8 memory slices; names are the profiles 1g, 1g with twice the
// memory, 2g, 3g, 4g and 7g.
func typeA(names ...string) *Geometry {
	every := []int{0, 1, 2, 3, 4, 5, 6}
	return &Geometry{Slices: 8, Profiles: []Profile{
		{Name: names[0], Compute: 1, Size: 1, Starts: every, Most: 7, MemoryMiB: 9728, SMs: 14, Copy: 1},
		{Name: names[0] + "+me", Compute: 1, Size: 1, Starts: every, Most: 1, Media: "one", MemoryMiB: 9728, SMs: 14, Copy: 1, Decoder: 1, JPEG: 1, OFA: 1},
		{Name: names[1], Compute: 1, Size: 2, Starts: []int{0, 2, 4, 6}, Most: 4, MemoryMiB: 19968, SMs: 14, Copy: 1, Decoder: 1},
		{Name: names[2], Compute: 2, Size: 2, Starts: []int{0, 2, 4}, Most: 3, MemoryMiB: 19968, SMs: 28, Copy: 2, Decoder: 1},
		{Name: names[3], Compute: 3, Size: 4, Starts: []int{0, 4}, Most: 2, MemoryMiB: 40192, SMs: 42, Copy: 3, Decoder: 2},
		{Name: names[4], Compute: 4, Size: 4, Starts: []int{0}, Most: 1, MemoryMiB: 40192, SMs: 56, Copy: 4, Decoder: 2},
		{Name: names[5], Compute: 7, Size: 8, Starts: []int{0}, Most: 1, MemoryMiB: 80640, SMs: 98, Copy: 7, Decoder: 5, JPEG: 1, OFA: 1},
	}}
}

func a100(gpus int) *Hardware {
	return &Hardware{Product: "NVIDIA A100-SXM4-80GB", GPUs: gpus, MemoryMiB: 81920, Family: "ampere", Compute: "8.0", MIGCapable: true,
		MIG: typeA("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"), Driver: "580.95.05", CUDA: "13.0", PCI: "20b2"}
}

func h100(gpus int) *Hardware {
	h := a100(gpus)
	h.Product, h.Family, h.Compute, h.PCI = "NVIDIA H100 80GB HBM3", "hopper", "9.0", "2330"
	return h
}

// rtxPro and a30 have profiles whose media engines exclude one another.
var (
	rtxPro = &Geometry{Slices: 12, Profiles: []Profile{
		{Name: "1g.24gb", Compute: 1, Size: 3, Starts: []int{0, 3, 6, 9}, Most: 4, Media: "share"},
		{Name: "1g.24gb+me.all", Compute: 1, Size: 3, Starts: []int{0, 3, 6, 9}, Most: 1, Media: "all"},
		{Name: "1g.24gb-me", Compute: 1, Size: 3, Starts: []int{0, 3, 6, 9}, Most: 4, Media: "none"},
		{Name: "2g.48gb", Compute: 2, Size: 6, Starts: []int{0, 6}, Most: 2, Media: "share"},
		{Name: "2g.48gb+me.all", Compute: 2, Size: 6, Starts: []int{0, 6}, Most: 1, Media: "all"},
	}}
	a30 = &Geometry{Slices: 4, Profiles: []Profile{
		{Name: "1g.6gb+me", Compute: 1, Size: 1, Starts: []int{0, 1, 2, 3}, Most: 1, Media: "one"},
		{Name: "2g.12gb", Compute: 2, Size: 2, Starts: []int{0, 2}, Most: 2, Media: "share"},
		{Name: "2g.12gb+me", Compute: 2, Size: 2, Starts: []int{0, 2}, Most: 1, Media: "one"},
	}}
)

// The maximal layouts of type A; d is the 1g with twice the memory.
const maximal = "7 | 4+3 | 4+2+1 | 4+2+d | 4+1+1+1 | 4+d+1+1 | 4+d+d | 3+3 | 3+2+2 | 3+2+1+1 | 3+2+d | 3+1+1+1+1 | 3+d+1+1 | 3+d+d | " +
	"2+2+2+1 | 2+2+2+d | 2+2+1+1+1 | 2+2+d+1+1 | 2+2+d+d | 2+1+1+1+1+1 | 2+d+1+1+1+1 | 2+d+d+1+1 | 2+d+d+d | " +
	"1+1+1+1+1+1+1 | d+1+1+1+1+1+1 | d+d+1+1+1+1 | d+d+d+1+1 | d+d+d+d"

var shape = map[string]string{"7": "7g.80gb", "4": "4g.40gb", "3": "3g.40gb", "2": "2g.20gb", "d": "1g.20gb", "1": "1g.10gb"}

func counts(text string) map[string]int {
	counts := map[string]int{}
	for _, part := range strings.Split(strings.TrimSpace(text), "+") {
		counts[shape[part]]++
	}
	return counts
}

func TestFitTypeA(t *testing.T) {
	g := a100(1).MIG
	layouts := strings.Split(maximal, "|")
	if len(layouts) != 28 {
		t.Fatalf("%d layouts", len(layouts))
	}
	for _, text := range layouts {
		devices, fits := g.Fit(counts(text))
		if !fits {
			t.Errorf("%s does not fit", text)
		}
		checkPlaces(t, g, devices)
		for more := range shape {
			if _, fits := g.Fit(counts(text + "+" + more)); fits {
				t.Errorf("%s with one more %s fits", text, more)
			}
		}
	}
}

// checkPlaces checks that devices have valid start positions and do not overlap.
func checkPlaces(t *testing.T, g *Geometry, devices []MIGDevice) {
	t.Helper()
	taken := map[int]MIGDevice{}
	for _, s := range devices {
		profile, known := g.Profile(s.Profile)
		if !known || !slices.Contains(profile.Starts, s.Start) {
			t.Errorf("%v may not be there", s)
		}
		for at := s.Start; at < s.Start+profile.Size; at++ {
			if other, full := taken[at]; full || at >= g.Slices {
				t.Errorf("%v and %v overlap", s, other)
			}
			taken[at] = s
		}
	}
}

func TestFitExtras(t *testing.T) {
	for _, test := range []struct {
		name   string
		g      *Geometry
		counts map[string]int
		fits   bool
	}{
		{name: "nothing", g: rtxPro, fits: true},
		{name: "count of zero", g: rtxPro, counts: map[string]int{"1g.24gb": 0}, fits: true},
		{name: "unknown", g: rtxPro, counts: map[string]int{"1g.10gb": 1}},
		{name: "one +me beside others", g: a100(1).MIG, counts: map[string]int{"1g.10gb+me": 1, "1g.10gb": 6}, fits: true},
		{name: "two +me", g: a100(1).MIG, counts: map[string]int{"1g.10gb+me": 2}},
		{name: "all media beside none", g: rtxPro, counts: map[string]int{"1g.24gb+me.all": 1, "1g.24gb-me": 3}, fits: true},
		{name: "all media beside some", g: rtxPro, counts: map[string]int{"1g.24gb+me.all": 1, "1g.24gb": 1}},
		{name: "all media twice", g: rtxPro, counts: map[string]int{"1g.24gb+me.all": 1, "2g.48gb+me.all": 1}},
		{name: "two kinds of +me", g: a30, counts: map[string]int{"1g.6gb+me": 1, "2g.12gb+me": 1}},
		{name: "one kind of +me", g: a30, counts: map[string]int{"1g.6gb+me": 1, "2g.12gb": 1}, fits: true},
		{name: "mixed sizes", g: rtxPro, counts: map[string]int{"2g.48gb": 1, "1g.24gb": 2}, fits: true},
		{name: "too large", g: rtxPro, counts: map[string]int{"2g.48gb": 2, "1g.24gb": 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			devices, fits := test.g.Fit(test.counts)
			if fits != test.fits {
				t.Fatalf("%v", devices)
			}
			checkPlaces(t, test.g, devices)
		})
	}
}

func TestNames(t *testing.T) {
	for _, test := range []struct{ name, extras, plain, label string }{
		{"1g.5gb", "", "1g.5gb", "1g.5gb"},
		{"1g.5gb+me", "+me", "1g.5gb", "1g.5gb.me"},
		{"1g.24gb+me.all", "+me.all", "1g.24gb", "1g.24gb.me.all"},
		{"1g.24gb-me", "-me", "1g.24gb", "1g.24gb-me"},
	} {
		if got := fmt.Sprint(extras(test.name), plain(test.name), label(test.name)); got != test.extras+test.plain+test.label {
			t.Errorf("%s: %s", test.name, got)
		}
	}
}
