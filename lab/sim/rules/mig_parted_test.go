// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"strings"
	"testing"

	parted "github.com/NVIDIA/mig-parted/api/spec/v1"
)

const migFile = `
version: v1
mig-configs:
  all-disabled: [{devices: all, mig-enabled: false}]
  all-enabled: [{devices: all, mig-enabled: true, mig-devices: {}}]
  halves: [{devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2}}]
  sevenths: [{devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}]
  first: [{devices: [0], mig-enabled: true, mig-devices: {7g.80gb: 1}}, {devices: [1], mig-enabled: false}]
  overwritten: [{devices: all, mig-enabled: true, mig-devices: {7g.80gb: 1}}, {devices: [1], mig-enabled: true, mig-devices: {3g.40gb: 2}}]
  filtered: [{device-filter: ["0x20B210DE", "0x20B510DE"], devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2}}]
  elsewhere: [{device-filter: "0x233010DE", devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2}}]
  too-much: [{devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2, 1g.10gb: 1}}]
  foreign: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}]
  compute: [{devices: all, mig-enabled: true, mig-devices: {1c.3g.40gb: 2}}]
`

func migConfig(t *testing.T, name string) parted.MigConfigSpecSlice {
	t.Helper()
	entries, err := MIGConfig(map[string]string{MIGConfigKey: migFile}, name)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func TestMIGConfig(t *testing.T) {
	one := func(entry string) string { return "version: v1\nmig-configs: {x: [" + entry + "]}" }
	for _, test := range []struct{ name, text, config, err string }{
		{name: "disabled", text: one("{devices: all, mig-enabled: false}"), config: "x"},
		{name: "unknown", text: migFile, config: "thirds", err: "error selecting MIG config: selected mig-config not present: thirds"},
		{name: "none named", text: migFile, err: "error selecting MIG config: missing required flag 'selected-config' when more than one config available"},
		{name: "bare index", text: one("{devices: 0, mig-enabled: false}"), config: "x", err: "cannot unmarshal number"},
		{name: "bad profile", text: one("{devices: all, mig-enabled: true, mig-devices: {3g: 1}}"), config: "x", err: "invalid format for '3g'"},
		{name: "no counts", text: one("{devices: all, mig-enabled: true, mig-devices: {3g.40gb: 0}}"), config: "x", err: "all counts for all MigProfiles are 0"},
		{name: "devices missing", text: one("{devices: all, mig-enabled: true}"), config: "x", err: "missing required field 'mig-devices'"},
		{name: "devices although off", text: one("{devices: all, mig-enabled: false, mig-devices: {3g.40gb: 1}}"), config: "x", err: "MIG devices included when 'mig-enabled' is false"},
		{name: "misspelt key", text: one("{devices: all, mig-enable: false}"), config: "x", err: "missing required field: mig-enabled"},
		{name: "version", text: "version: v2\nmig-configs: {x: [{devices: all, mig-enabled: false}]}", config: "x", err: "unknown version: v2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := MIGConfig(map[string]string{MIGConfigKey: test.text}, test.config)
			if (err == nil) != (test.err == "") || (err != nil && !strings.Contains(err.Error(), test.err)) {
				t.Errorf("%v", err)
			}
		})
	}
	if _, err := MIGConfig(map[string]string{"other.yaml": migFile}, "halves"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
}

func TestApply(t *testing.T) {
	whole, half := []MIGDevice{{"7g.80gb", 0}}, []MIGDevice{{"3g.40gb", 0}, {"3g.40gb", 4}}
	on := func(first, second []MIGDevice) Layout { return Layout{GPUs: map[int][]MIGDevice{0: first, 1: second}} }
	for _, test := range []struct {
		name, config string
		before       Layout
		want         Layout
		err          string
	}{
		{name: "from off", config: "halves", want: on(half, half)},
		{name: "again", config: "halves", before: on(half, half), want: on(half, half)},
		{name: "another layout", config: "sevenths", before: on(half, half), want: on(sevenths(), sevenths())},
		{name: "off again", config: "all-disabled", before: on(half, half)},
		{name: "on and empty", config: "all-enabled", before: on(half, half), want: on([]MIGDevice{}, []MIGDevice{})},
		{name: "one GPU", config: "first", before: on(half, half), want: Layout{GPUs: map[int][]MIGDevice{0: whole}}},
		{name: "a later entry wins", config: "overwritten", want: on(whole, half)},
		{name: "filtered by id", config: "filtered", want: on(half, half)},
		{name: "no GPU matches", config: "elsewhere"},
		{name: "does not fit", config: "too-much", before: on(half, half), want: on([]MIGDevice{}, half), err: "all orderings failed"},
		{name: "a profile of other models is a success without devices", config: "foreign", before: on(half, half), want: on([]MIGDevice{}, []MIGDevice{})},
		{name: "compute instances", config: "compute", want: on([]MIGDevice{}, []MIGDevice{}), err: "no compute instances of their own"},
	} {
		for _, h := range []*Hardware{a100(2), h100(2)} {
			if h.PCI != "20b2" && (test.config == "filtered" || test.config == "elsewhere") {
				continue
			}
			t.Run(test.name+" "+h.Family, func(t *testing.T) {
				p := MIGParted{Hardware: h, Layout: test.before}
				err := p.Apply(migConfig(t, test.config))
				if (err == nil) != (test.err == "") || (err != nil && !strings.Contains(err.Error(), test.err)) {
					t.Fatalf("%v", err)
				}
				if !p.Layout.Equal(test.want) {
					t.Errorf("%+v", p.Layout)
				}
				applied := test.err == "" && test.config != "foreign" && test.config != "elsewhere" && test.config != "overwritten"
				if got := p.AssertMode(migConfig(t, test.config)) && p.AssertConfig(migConfig(t, test.config)); applied && !got {
					t.Error("the configuration is not reported as applied")
				}
			})
		}
	}
}

func sevenths() []MIGDevice {
	var devices []MIGDevice
	for start := range 7 {
		devices = append(devices, MIGDevice{"1g.10gb", start})
	}
	return devices
}

func TestApplyToWhatIsInUse(t *testing.T) {
	mixed := Layout{GPUs: map[int][]MIGDevice{0: {{"3g.40gb", 0}, {"1g.10gb", 4}}, 1: {}}}
	for _, test := range []struct {
		name, config string
		h            *Hardware
		before       Layout
		ids          []string
		all, noReset bool
		want         Layout
		err          string
	}{
		{name: "a GPU, mode by reset", config: "halves", h: a100(2), ids: []string{UUID("n", 1)}, want: Layout{Pending: map[int]bool{0: true, 1: true}},
			err: "error resetting all GPUs: exit status 255: In use by another client"},
		{name: "a GPU, mode at once", config: "halves", h: h100(2), ids: []string{UUID("n", 1)}, want: Layout{GPUs: map[int][]MIGDevice{0: {}}}, err: "error setting Mig mode: In use by another client"},
		{name: "a MIG device; smaller ones are gone before it is met", config: "halves", h: h100(2), before: mixed, ids: []string{MIGUUID("n", 0, MIGDevice{"3g.40gb", 0})},
			want: Layout{GPUs: map[int][]MIGDevice{0: {{"3g.40gb", 0}}, 1: {}}}, err: "error walking gpu instances for '0': error walking compute instances for '2': error destroying Compute instance for profile '(2, 0)': In use by another client"},
		{name: "a MIG device of a GPU that stays as it is", config: "first", h: h100(2), before: Layout{GPUs: map[int][]MIGDevice{0: {{"7g.80gb", 0}}}}, ids: []string{MIGUUID("n", 0, MIGDevice{"7g.80gb", 0})},
			want: Layout{GPUs: map[int][]MIGDevice{0: {{"7g.80gb", 0}}}}},
		{name: "everything, mode", config: "halves", h: h100(2), all: true, err: inUse},
		{name: "everything, devices", config: "halves", h: h100(2), before: Layout{GPUs: map[int][]MIGDevice{0: {}, 1: {}}}, all: true, want: Layout{GPUs: map[int][]MIGDevice{0: {}, 1: {}}}, err: inUse},
		{name: "no reset", config: "halves", h: h100(2), noReset: true, want: Layout{Pending: map[int]bool{0: true, 1: true}}, err: "resetting the GPUs is not supported"},
		{name: "no reset, and none needed", config: "halves", h: a100(2), before: Layout{GPUs: map[int][]MIGDevice{0: {}, 1: {}}}, noReset: true,
			want: Layout{GPUs: map[int][]MIGDevice{0: {{"3g.40gb", 0}, {"3g.40gb", 4}}, 1: {{"3g.40gb", 0}, {"3g.40gb", 4}}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := MIGParted{Hardware: test.h, Layout: test.before, Use: UsageOf("n", test.h, test.before, test.ids), NoReset: test.noReset}
			p.Use.All = test.all
			err := p.Apply(migConfig(t, test.config))
			if (err == nil) != (test.err == "") || (err != nil && !strings.Contains(err.Error(), test.err)) {
				t.Fatalf("%v", err)
			}
			if !p.Layout.Equal(test.want) {
				t.Errorf("%+v", p.Layout)
			}
		})
	}
}

func TestApplyWithoutMIG(t *testing.T) {
	t4 := &Hardware{Product: "Tesla T4", GPUs: 1, Compute: "7.5", PCI: "1eb8"}
	for name, err := range map[string]string{"all-disabled": "", "halves": "", "first": "error applying MIG configuration with hooks: cannot set MIG mode on non MIG-capable GPU"} {
		p := MIGParted{Hardware: t4}
		if got := p.Apply(migConfig(t, name)); (got == nil) != (err == "") || (got != nil && got.Error() != err) {
			t.Errorf("%s: %v", name, got)
		}
		if len(p.Layout.GPUs) > 0 {
			t.Errorf("%s: %+v", name, p.Layout)
		}
	}
}
