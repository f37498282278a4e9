// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"maps"
	"time"
)

// ConfigMapHistory stores the versions of a ConfigMap while a pod can still have an old one mounted.
type ConfigMapHistory struct {
	versions []version
}

type version struct {
	data map[string]string
	seen time.Time
}

// Observe adds a version; lag is the maximum delay of a mounted copy.
func (h *ConfigMapHistory) Observe(data map[string]string, now time.Time, lag time.Duration) {
	if n := len(h.versions); n > 0 && maps.Equal(h.versions[n-1].data, data) {
		return
	}
	h.versions = append(h.versions, version{data: data, seen: now})
	for len(h.versions) > 1 && !h.versions[1].seen.After(now.Add(-lag)) {
		h.versions = h.versions[1:]
	}
}

// View returns the copy that a pod has mounted: the version at the last refresh of its volume, or the newest version that is
// older than the lag, whichever is newer.
func (h *ConfigMapHistory) View(now time.Time, lag time.Duration, refreshed time.Time) map[string]string {
	if len(h.versions) == 0 {
		return nil
	}
	horizon := now.Add(-lag)
	if refreshed.After(horizon) {
		horizon = refreshed
	}
	view := h.versions[0].data
	for _, v := range h.versions[1:] {
		if v.seen.After(horizon) {
			break
		}
		view = v.data
	}
	return view
}

// BackOff returns the kubelet's delay before the n-th restart of a crashed container.
func BackOff(restarts int) time.Duration {
	delay := 10 * time.Second
	for n := 1; n < restarts && delay < 5*time.Minute; n++ {
		delay *= 2
	}
	return min(delay, 5*time.Minute)
}
