// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// The profiles of an A100 80GB and of an A30.
var (
	generatedA100 = []Profile{
		{Name: "1g.10gb", Compute: 1, Most: 7}, {Name: "1g.10gb+me", Compute: 1, Most: 1}, {Name: "1g.20gb", Compute: 1, Most: 4},
		{Name: "2g.20gb", Compute: 2, Most: 3}, {Name: "3g.40gb", Compute: 3, Most: 2}, {Name: "4g.40gb", Compute: 4, Most: 1},
		{Name: "7g.80gb", Compute: 7, Most: 1},
	}
	generatedA30 = []Profile{
		{Name: "1g.6gb", Compute: 1, Most: 4}, {Name: "1g.6gb+me", Compute: 1, Most: 1}, {Name: "2g.12gb", Compute: 2, Most: 2},
		{Name: "2g.12gb+me", Compute: 2, Most: 1}, {Name: "4g.24gb", Compute: 4, Most: 1},
	}
)

func TestGeneratedMIGConfig(t *testing.T) {
	on := Layout{GPUs: map[int][]MIGDevice{0: {}}}
	for _, test := range []struct {
		name     string
		profiles []Profile
		driver   string
		layout   Layout
		want     string
	}{
		{"A100", generatedA100, "580.105.08", Layout{}, "all-1g.10gb=1g.10gb:7 all-1g.10gb.me=1g.10gb+me:1 all-1g.20gb=1g.20gb:4 all-2g.20gb=2g.20gb:3 " +
			"all-3g.40gb=3g.40gb:2 all-4g.40gb=4g.40gb:1 all-7g.80gb=7g.80gb:1 all-balanced=1g.10gb:2,2g.20gb:1,3g.40gb:1 all-disabled=off all-enabled="},
		{"A30", generatedA30, "580.105.08", Layout{}, "all-1g.6gb=1g.6gb:4 all-1g.6gb.me=1g.6gb+me:1 all-2g.12gb=2g.12gb:2 all-2g.12gb.me=2g.12gb+me:1 " +
			"all-4g.24gb=4g.24gb:1 all-balanced=1g.6gb:2,2g.12gb:1 all-disabled=off all-enabled="},
		{"no balanced", generatedA30[3:], "580.105.08", Layout{}, "all-2g.12gb.me=2g.12gb+me:1 all-4g.24gb=4g.24gb:1 all-disabled=off all-enabled="},
		{"old driver", generatedA30[4:], "535.183.06", Layout{}, ""},
		{"old driver with MIG on", generatedA30[4:], "535.183.06", on, "all-4g.24gb=4g.24gb:1 all-disabled=off all-enabled="},
		{"no profile", nil, "580.105.08", Layout{}, ""},
	} {
		text, generated := GeneratedMIGConfig(&Hardware{Driver: test.driver, MIG: &Geometry{Profiles: test.profiles}}, test.layout)
		if got := entriesOf(t, text); got != test.want || generated != (test.want != "") {
			t.Errorf("%s: %v\n got %s\nwant %s", test.name, generated, got, test.want)
		}
	}
	if _, generated := GeneratedMIGConfig(nil, Layout{}); generated {
		t.Error("a node without GPUs has a configuration")
	}
}

// entriesOf parses a configuration with NVIDIA's parser and returns it as one line.
func entriesOf(t *testing.T, text string) string {
	spec, err := MIGConfigs(text)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, name := range slices.Sorted(maps.Keys(spec.MigConfigs)) {
		devices := "off"
		if entry := spec.MigConfigs[name][0]; entry.MigEnabled {
			var counts []string
			for _, profile := range slices.Sorted(maps.Keys(entry.MigDevices)) {
				counts = append(counts, fmt.Sprintf("%s:%d", profile, entry.MigDevices[profile]))
			}
			devices = strings.Join(counts, ",")
		}
		found = append(found, name+"="+devices)
	}
	return strings.Join(found, " ")
}
