// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"strings"
	"testing"
)

func TestLabelsUnderMIG(t *testing.T) {
	const model = "NVIDIA-A100-SXM4-80GB"
	invalid := map[string]string{"gpu.product": model + "-MIG-INVALID", "gpu.count": "0", "gpu.replicas": "0", "gpu.sharing-strategy": "", "gpu.memory": "0", "gpu.family": "ampere"}
	for _, test := range []struct {
		name, strategy, config string
		layout                 Layout
		want                   map[string]string
		absent                 []string
	}{
		{name: "none", layout: uniform, want: map[string]string{"gpu.product": model, "gpu.count": "2", "gpu.replicas": "0", "gpu.sharing-strategy": "none", "gpu.memory": "81920"}, absent: []string{"mig.strategy"}},
		{name: "none, one GPU left whole", config: sharing4, layout: oneCut, want: map[string]string{"gpu.product": model + "-SHARED", "gpu.count": "2", "gpu.replicas": "4", "gpu.sharing-strategy": "time-slicing"}},
		{name: "single", strategy: "single", layout: uniform, want: map[string]string{"mig.strategy": "single", "gpu.product": model + "-MIG-3g.40gb", "gpu.count": "4", "gpu.replicas": "1", "gpu.sharing-strategy": "none",
			"gpu.memory": "40192", "gpu.multiprocessors": "42", "gpu.slices.gi": "3", "gpu.slices.ci": "3", "gpu.engines.copy": "3", "gpu.engines.decoder": "2", "gpu.engines.encoder": "0", "gpu.engines.jpeg": "0",
			"gpu.engines.ofa": "0", "gpu.family": "ampere", "mig.capable": "true", "mps.capable": "false"}},
		{name: "single, shared", strategy: "single", config: sharing4, layout: uniform, want: map[string]string{"gpu.product": model + "-MIG-3g.40gb-SHARED", "gpu.count": "4", "gpu.replicas": "4", "gpu.sharing-strategy": "time-slicing"}},
		{name: "single, renamed", strategy: "single", config: sharing4Rename, layout: uniform, want: map[string]string{"gpu.product": model + "-MIG-3g.40gb", "gpu.replicas": "4"}},
		{name: "single, media", strategy: "single", layout: twice(MIGDevice{"1g.10gb+me", 0}), want: map[string]string{"gpu.product": model + "-MIG-1g.10gb.me", "gpu.count": "2"}},
		{name: "single, several profiles", strategy: "single", layout: balanced, want: invalid},
		{name: "single, on and empty", strategy: "single", layout: empty, want: invalid},
		{name: "single, not all cut", strategy: "single", layout: oneCut, want: invalid},
		{name: "single, MIG off", strategy: "single", want: map[string]string{"mig.strategy": "single", "gpu.product": model, "gpu.count": "2", "gpu.replicas": "1"}},
		{name: "mixed", strategy: "mixed", layout: balanced, want: map[string]string{"mig.strategy": "mixed", "gpu.product": model, "gpu.count": "2", "gpu.replicas": "0", "mig-3g.40gb.count": "2", "mig-1g.10gb.count": "4",
			"mig-2g.20gb.product": model + "-MIG-2g.20gb", "mig-2g.20gb.replicas": "1", "mig-2g.20gb.sharing-strategy": "none", "mig-2g.20gb.memory": "19968", "mig-2g.20gb.multiprocessors": "28"}},
		{name: "mixed, shared", strategy: "mixed", config: shared("nvidia.com/mig-1g.10gb"), layout: balanced, want: map[string]string{"mig-1g.10gb.product": model + "-MIG-1g.10gb-SHARED", "mig-1g.10gb.replicas": "4",
			"mig-1g.10gb.sharing-strategy": "time-slicing", "mig-3g.40gb.replicas": "1", "gpu.replicas": "0"}},
		{name: "mixed, media", strategy: "mixed", layout: media, want: map[string]string{"mig-1g.10gb.me.count": "2", "mig-1g.10gb.count": "2", "mig-1g.10gb.me.product": model + "-MIG-1g.10gb.me", "mig-1g.10gb.me.engines.jpeg": "1"}},
		{name: "mixed beside whole GPUs", strategy: "mixed", layout: oneCut, want: map[string]string{"gpu.product": model, "gpu.count": "2", "gpu.replicas": "1", "mig-3g.40gb.count": "2"}},
		{name: "mixed, on and empty", strategy: "mixed", layout: empty, want: map[string]string{"gpu.product": model, "gpu.count": "2", "gpu.replicas": "0"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			config, err := GFDConfig(test.config, Environment{MIGStrategy: test.strategy})
			if err != nil {
				t.Fatal(err)
			}
			got, err := Labels(a100(2), test.layout, config)
			if err != nil {
				t.Fatal(err)
			}
			for key, want := range test.want {
				if value, there := got["nvidia.com/"+key]; !there || value != want {
					t.Errorf("%s = %q, want %q", key, value, want)
				}
			}
			for _, key := range test.absent {
				if value, there := got["nvidia.com/"+key]; there {
					t.Errorf("%s = %q", key, value)
				}
			}
		})
	}
}

func TestNoLabelsForMPSUnderMIG(t *testing.T) {
	config, err := GFDConfig(mps4, Environment{MIGStrategy: "single"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Labels(a100(2), uniform, config)
	if err == nil || !strings.HasSuffix(err.Error(), "failed to check MPS-capable: MPS sharing is not supported for mig devices") {
		t.Errorf("%v", err)
	}
}

func TestNoLabelsForAnUnknownStrategy(t *testing.T) {
	config, err := GFDConfig("flags: {migStrategy: both}", Environment{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Labels(a100(2), uniform, config)
	if want := "error creating labeler: error creating resource labeler: failed to construct MIG resource labeler: unknown strategy: both"; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}
