// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"encoding/json"
	"slices"
	"testing"
)

// halves has two GPUs: one with two equal MIG devices, one with MIG on and no devices.
var halves = Layout{GPUs: map[int][]MIGDevice{0: {{"3g.40gb", 0}, {"3g.40gb", 4}}, 1: {}}}

func TestLayoutIsKeptInAnAnnotation(t *testing.T) {
	before := halves.Clone()
	before.Pending[2] = true
	text, err := json.Marshal(before)
	if err != nil || string(text) != `{"gpus":{"0":["3g.40gb@0","3g.40gb@4"],"1":[]},"pending":{"2":true}}` {
		t.Errorf("%s, %v", text, err)
	}
	after, err := ParseLayout(string(text))
	if err != nil || !after.Equal(before) || after.Equal(halves) {
		t.Errorf("%+v, %v", after, err)
	}
	if none, err := ParseLayout(""); err != nil || none.Enabled(0) {
		t.Error("MIG is on without an annotation")
	}
	for _, broken := range []string{"{", `{"gpus": {"0": ["3g.40gb"]}}`, `{"gpus": {"0": ["3g.40gb@x"]}}`} {
		if _, err := ParseLayout(broken); err == nil {
			t.Errorf("%s is taken", broken)
		}
	}
}

func TestCloneIsNoAlias(t *testing.T) {
	copied := halves.Clone()
	copied.GPUs[0][0] = MIGDevice{"7g.80gb", 0}
	copied.GPUs[3] = nil
	if halves.GPUs[0][0].Profile != "3g.40gb" || halves.Enabled(3) {
		t.Error("the original changed")
	}
}

func TestRebooted(t *testing.T) {
	before := halves.Clone()
	before.Pending = map[int]bool{1: false, 2: true}
	after := before.AfterReboot()
	if !after.Equal(Layout{GPUs: map[int][]MIGDevice{0: {}, 2: {}}}) {
		t.Errorf("%+v", after)
	}
}

func TestUnusable(t *testing.T) {
	for _, test := range []struct {
		name string
		l    Layout
		want bool
	}{
		{"MIG off", Layout{}, false},
		{"all empty", Layout{GPUs: map[int][]MIGDevice{0: {}, 1: {}}}, true},
		{"one whole GPU", Layout{GPUs: map[int][]MIGDevice{0: {}}}, false},
		{"one device", halves, false},
	} {
		if got := test.l.Unusable(a100(2)); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

func TestUUIDs(t *testing.T) {
	first := MIGUUID("n1", 0, MIGDevice{"3g.40gb", 0})
	others := []string{MIGUUID("n1", 0, MIGDevice{"3g.40gb", 4}), MIGUUID("n1", 1, MIGDevice{"3g.40gb", 0}), MIGUUID("n2", 0, MIGDevice{"3g.40gb", 0}), MIGUUID("n1", 0, MIGDevice{"4g.40gb", 0})}
	if len(first) != 40 || first[:4] != "MIG-" || slices.Contains(others, first) || first != MIGUUID("n1", 0, MIGDevice{"3g.40gb", 0}) {
		t.Error("UUIDs are not unique")
	}
}

func TestUsing(t *testing.T) {
	first, second := halves.GPUs[0][0], halves.GPUs[0][1]
	use := UsageOf("n1", a100(3), halves, []string{MIGUUID("n1", 0, first) + "::1", UUID("n1", 2), "MIG-gone"})
	if !use.Holds(0, first) || use.Holds(0, second) || !use.Busy(0) || use.Busy(1) || !use.Busy(2) {
		t.Errorf("%+v", use)
	}
	if !(Usage{All: true}).Busy(7) || !(Usage{All: true}).Holds(7, first) {
		t.Error("All does not hold everything")
	}
	if UsageOf("n1", nil, Layout{}, []string{"x"}).Busy(0) {
		t.Error("a node without GPUs is busy")
	}
}

func TestSMI(t *testing.T) {
	h := a100(2)
	first, second := MIGUUID("n1", 0, halves.GPUs[0][0]), MIGUUID("n1", 0, halves.GPUs[0][1])
	head := "GPU 0: NVIDIA A100-SXM4-80GB (UUID: "
	for _, test := range []struct {
		name    string
		layout  Layout
		visible []string
		want    []string
	}{
		{"a whole GPU", Layout{}, []string{UUID("n1", 1)}, []string{head + UUID("n1", 1) + ")"}},
		{"one MIG device", halves, []string{second}, []string{head + UUID("n1", 0) + ")", "  MIG 3g.40gb     Device  0: (UUID: " + second + ")"}},
		{"a GPU shows its devices", halves, []string{UUID("n1", 0)},
			[]string{head + UUID("n1", 0) + ")", "  MIG 3g.40gb     Device  0: (UUID: " + first + ")", "  MIG 3g.40gb     Device  1: (UUID: " + second + ")"}},
		{"one that is gone", Layout{}, []string{first}, []string{"No devices found."}},
		{"none", halves, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := NvidiaSMI("n1", h, test.layout, test.visible); !slices.Equal(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
