// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"slices"
	"testing"
	"time"
)

func TestTheStatusIsWrittenAtFixedTimes(t *testing.T) {
	now, period := time.Now(), 10*time.Second
	first := nextStatus("n1", now, period)
	if wait := first.Sub(now); wait <= 0 || wait > period {
		t.Errorf("the next status is written in %s", wait)
	}
	if second := nextStatus("n1", first, period); second.Sub(first) != period {
		t.Errorf("then in %s", second.Sub(first))
	}
	if nextStatus("n2", now, period).Equal(first) {
		t.Error("two nodes write at the same time")
	}
}

func TestAChangedNumberOfDevicesIsWrittenWithTheNextStatus(t *testing.T) {
	for period, writes := range map[time.Duration]bool{0: true, time.Hour: false} {
		f := newDriverFixture(t, driverManager09)
		f.r.options.Scale, f.r.options.NodeStatusPeriod = 1, period
		// Just after a write, so that the next one is far away.
		f.r.memory.endpoints, f.r.memory.statusDue = map[string]*endpoint{"nvidia.com/gpu": {ids: []string{"a"}, size: 1}}, time.Now().Add(period)
		if err := f.r.register(nil); err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(f.requests, "status"); got != writes {
			t.Errorf("period %s: %v", period, f.requests)
		}
		if period == 0 {
			continue
		}
		f.r.memory.statusDue = time.Now().Add(-time.Millisecond)
		if err := f.r.register(nil); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(f.requests, "status") || !f.r.memory.statusDue.IsZero() {
			t.Errorf("period %s, when it is due: %v", period, f.requests)
		}
	}
}
