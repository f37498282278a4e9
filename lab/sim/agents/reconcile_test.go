// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"testing"
	"time"

	"lab.invalid/sim/rules"
)

func TestTimeFactor(t *testing.T) {
	for _, test := range []struct {
		annotation string
		want       time.Duration
	}{
		{"", 2 * time.Second},
		{`{"gpus": 1}`, 2 * time.Second},
		{`{"gpus": 1, "time_factor": 1}`, 2 * time.Second},
		{`{"gpus": 1, "time_factor": 0.5}`, time.Second},
		{`{"gpus": 1, "time_factor": 3}`, 6 * time.Second},
	} {
		hardware, err := rules.ParseHardware(test.annotation)
		if err != nil {
			t.Fatal(err)
		}
		r := &reconciliation{Simulator: &Simulator{options: Options{Scale: 0.1}}, node: &Node{Hardware: hardware}}
		if got := r.scaledForNode(20 * time.Second); got != test.want || r.scaled(20*time.Second) != 2*time.Second {
			t.Errorf("%s: %v, want %v", test.annotation, got, test.want)
		}
	}
	if _, err := rules.ParseHardware(`{"gpus": 1, "time_factor": -1}`); err == nil {
		t.Error("a negative time factor is accepted")
	}
}
