// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"maps"
	"slices"
	"testing"
	"time"
)

func replicas(gpus []string, count int) []string {
	var ids []string
	for _, gpu := range gpus {
		for i := range count {
			ids = append(ids, gpu+"::"+string(rune('0'+i)))
		}
	}
	return ids
}

func TestAllocate(t *testing.T) {
	shared := map[string][]string{"nvidia.com/gpu": replicas([]string{"A", "B"}, 2)}
	whole := map[string][]string{"nvidia.com/gpu": {"A", "B"}, "nvidia.com/gpu.shared": {}}
	ask := func(resource string, count int) []DeviceRequest {
		return []DeviceRequest{{Container: "c", Resource: resource, Count: count}}
	}
	for _, test := range []struct {
		name     string
		pool     DevicePool
		requests []DeviceRequest
		want     []string
		refusal  string
	}{
		{name: "first", pool: DevicePool{Healthy: shared}, requests: ask("nvidia.com/gpu", 1), want: []string{"A::0"}},
		{name: "the emptier GPU", pool: DevicePool{Healthy: shared, Used: map[string]map[string]bool{"nvidia.com/gpu": {"A::0": true}}}, requests: ask("nvidia.com/gpu", 1), want: []string{"B::0"}},
		{name: "two shares of two GPUs", pool: DevicePool{Healthy: shared}, requests: ask("nvidia.com/gpu", 2), want: []string{"A::0", "B::0"}},
		{name: "two whole GPUs", pool: DevicePool{Healthy: whole, OnePerRequest: true}, requests: ask("nvidia.com/gpu", 2), want: []string{"A", "B"}},
		{name: "refused", pool: DevicePool{Healthy: shared, OnePerRequest: true}, requests: ask("nvidia.com/gpu", 2), refusal: "Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = " +
			`invalid allocation request for "nvidia.com/gpu": invalid request: maximum request size for shared resources is 1; found 2, which is unexpected`},
		{name: "too many", pool: DevicePool{Healthy: whole}, requests: ask("nvidia.com/gpu", 3), refusal: "Pod was rejected: Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 3, Available: 2, which is unexpected"},
		{name: "plugin gone", pool: DevicePool{Healthy: whole}, requests: ask("nvidia.com/gpu.shared", 1),
			refusal: "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu.shared, which is unexpected"},
		{name: "never seen", pool: DevicePool{}, requests: ask("nvidia.com/gpu", 1), refusal: "Pod was rejected: Allocate failed due to cannot allocate unregistered device nvidia.com/gpu, which is unexpected"},
		{name: "an init container's device is used again", pool: DevicePool{Healthy: map[string][]string{"nvidia.com/gpu": {"A"}}},
			requests: []DeviceRequest{{Container: "i", Init: true, Resource: "nvidia.com/gpu", Count: 1}, {Container: "c", Resource: "nvidia.com/gpu", Count: 1}}, want: []string{"A"}},
		{name: "two containers", pool: DevicePool{Healthy: map[string][]string{"nvidia.com/gpu": {"A", "B"}}},
			requests: []DeviceRequest{{Container: "b", Resource: "nvidia.com/gpu", Count: 1}, {Container: "c", Resource: "nvidia.com/gpu", Count: 1}}, want: []string{"B"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			allocation, err := test.pool.Allocate(test.requests)
			if test.refusal != "" {
				if err == nil || Rejection(err) != test.refusal {
					t.Fatalf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := allocation["c"][test.requests[len(test.requests)-1].Resource]; !slices.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestFourShareAndTheFifthIsLeft(t *testing.T) {
	pool := DevicePool{Healthy: map[string][]string{"nvidia.com/gpu": replicas([]string{"A"}, 4)}}
	var held []Allocation
	for range 4 {
		pool.Used = InUse(held)
		allocation, err := pool.Allocate([]DeviceRequest{{Container: "c", Resource: "nvidia.com/gpu", Count: 1}})
		if err != nil {
			t.Fatal(err)
		}
		if seen := Visible(allocation["c"]); !slices.Equal(seen, []string{"A"}) {
			t.Errorf("sees %v", seen)
		}
		held = append(held, allocation)
	}
	pool.Used = InUse(held)
	if _, err := pool.Allocate([]DeviceRequest{{Container: "c", Resource: "nvidia.com/gpu", Count: 1}}); err == nil {
		t.Error("a fifth share was given")
	}
}

func TestVisible(t *testing.T) {
	if got := Visible(map[string][]string{"nvidia.com/gpu": {"A::0", "A::3", "B::0"}}); !slices.Equal(got, []string{"A", "B"}) {
		t.Error(got)
	}
}

func TestMountedCopy(t *testing.T) {
	const lag = time.Minute
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	first, second, third := map[string]string{"k": "1"}, map[string]string{"k": "2"}, map[string]string{"k": "3"}
	for _, test := range []struct {
		name           string
		now, refreshed int
		want           map[string]string
	}{
		{name: "before the lag", now: 109, refreshed: 1, want: first},
		{name: "after the lag", now: 110, refreshed: 1, want: second},
		{name: "refreshed in between", now: 60, refreshed: 55, want: second},
		{name: "refreshed before the last", now: 75, refreshed: 69, want: second},
		{name: "long after", now: 500, refreshed: 1, want: third},
	} {
		t.Run(test.name, func(t *testing.T) {
			var h ConfigMapHistory
			h.Observe(first, at(0), lag)
			h.Observe(second, at(50), lag)
			h.Observe(maps.Clone(second), at(60), lag)
			h.Observe(third, at(70), lag)
			if got := h.View(at(test.now), lag, at(test.refreshed)); !maps.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
	var h ConfigMapHistory
	for i := range 100 {
		h.Observe(map[string]string{"k": string(rune(i))}, at(i*30), lag)
	}
	if len(h.versions) > 4 {
		t.Errorf("%d versions are kept", len(h.versions))
	}
}

func TestDelay(t *testing.T) {
	for restarts, want := range map[int]time.Duration{1: 10 * time.Second, 2: 20 * time.Second, 5: 160 * time.Second, 6: 5 * time.Minute, 60: 5 * time.Minute} {
		if got := BackOff(restarts); got != want {
			t.Errorf("%d: %v", restarts, got)
		}
	}
}

func TestFaults(t *testing.T) {
	faults := ParseFaults("plugin-crash, operand-pending=nvidia-dcgm,")
	if !faults.Has(PluginCrash) || faults.Has(GFDStalled) || !faults.Pending("nvidia-dcgm") || faults.Pending("nvidia-dcgm-exporter") || !ParseFaults("operand-pending").Pending("x") {
		t.Error(faults)
	}
}
