// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// MIGAnnotation stores the MIG layout of a node's GPUs, as the hardware does.
const MIGAnnotation = "lab.accel.gpu/mig"

// MIGDevice is one MIG device: its profile and its first memory slice.
type MIGDevice struct {
	Profile string
	Start   int
}

// MarshalText writes a device as 3g.20gb@4.
func (s MIGDevice) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%s@%d", s.Profile, s.Start), nil
}

// UnmarshalText parses the format of MarshalText.
func (s *MIGDevice) UnmarshalText(text []byte) error {
	profile, start, found := strings.Cut(string(text), "@")
	at, err := strconv.Atoi(start)
	if !found || err != nil {
		return fmt.Errorf("%q is not a MIG device such as 3g.20gb@4", text)
	}
	s.Profile, s.Start = profile, at
	return nil
}

// Layout is the MIG state of a node's GPUs. A GPU that is missing in GPUs has MIG off; one with an empty list has MIG on and
// no devices. Pending contains modes that wait for a reset. Changed is the time of the last change, in Unix seconds.
type Layout struct {
	GPUs    map[int][]MIGDevice `json:"gpus,omitempty"`
	Pending map[int]bool        `json:"pending,omitempty"`
	Changed int64               `json:"changed,omitempty"`
}

// ParseLayout parses the annotation of a node; without one, all GPUs have MIG off.
func ParseLayout(annotation string) (Layout, error) {
	var l Layout
	if annotation == "" {
		return l, nil
	}
	if err := json.Unmarshal([]byte(annotation), &l); err != nil {
		return Layout{}, fmt.Errorf("%s: %w", MIGAnnotation, err)
	}
	return l, nil
}

// Clone returns a deep copy of a layout.
func (l Layout) Clone() Layout {
	copied := Layout{GPUs: map[int][]MIGDevice{}, Pending: maps.Clone(l.Pending), Changed: l.Changed}
	for gpu, devices := range l.GPUs {
		copied.GPUs[gpu] = slices.Clone(devices)
	}
	if copied.Pending == nil {
		copied.Pending = map[int]bool{}
	}
	return copied
}

// Equal returns whether two layouts have the same devices and pending modes.
func (l Layout) Equal(other Layout) bool {
	return maps.EqualFunc(l.GPUs, other.GPUs, slices.Equal[[]MIGDevice]) && maps.Equal(l.Pending, other.Pending)
}

// Enabled returns whether a GPU has MIG on.
func (l Layout) Enabled(gpu int) bool {
	_, on := l.GPUs[gpu]
	return on
}

// Count returns the number of MIG devices on all GPUs.
func (l Layout) Count() int {
	count := 0
	for _, devices := range l.GPUs {
		count += len(devices)
	}
	return count
}

// Unusable returns whether no program can use any GPU of a node: all have MIG on, and none has a device.
func (l Layout) Unusable(h *Hardware) bool {
	return h != nil && len(l.GPUs) == h.GPUs && l.Count() == 0
}

// AfterReboot returns the layout after a reboot: pending modes are in effect, and MIG devices are deleted.
func (l Layout) AfterReboot() Layout {
	after := Layout{GPUs: map[int][]MIGDevice{}, Changed: l.Changed}
	for gpu := range l.GPUs {
		after.GPUs[gpu] = []MIGDevice{}
	}
	for gpu, on := range l.Pending {
		if on {
			after.GPUs[gpu] = []MIGDevice{}
		} else {
			delete(after.GPUs, gpu)
		}
	}
	return after
}

// MIGUUID returns the UUID of a MIG device: the same profile at the same position of the same GPU always gives the same UUID.
func MIGUUID(node string, gpu int, s MIGDevice) string {
	return "MIG-" + hashUUID(fmt.Sprintf("%s/%d/%s@%d", node, gpu, s.Profile, s.Start))
}

func hashUUID(name string) string {
	s := fmt.Sprintf("%x", sha256.Sum256([]byte(name)))
	return fmt.Sprintf("%s-%s-%s-%s-%s", s[:8], s[8:12], s[12:16], s[16:20], s[20:32])
}

// Usage contains the GPUs and MIG devices that running pods hold; All means that an unknown process holds all GPUs.
type Usage struct {
	GPUs    map[int]bool
	Devices map[int]map[MIGDevice]bool
	All     bool
}

// UsageOf returns the GPUs and MIG devices with these device ids; ids of deleted devices are ignored.
func UsageOf(node string, h *Hardware, l Layout, ids []string) Usage {
	held := map[string]bool{}
	for _, id := range ids {
		held[GPU(id)] = true
	}
	use := Usage{GPUs: map[int]bool{}, Devices: map[int]map[MIGDevice]bool{}}
	if h == nil {
		return use
	}
	for gpu := range h.GPUs {
		use.GPUs[gpu] = held[UUID(node, gpu)]
		use.Devices[gpu] = map[MIGDevice]bool{}
		for _, s := range l.GPUs[gpu] {
			use.Devices[gpu][s] = held[MIGUUID(node, gpu, s)]
		}
	}
	return use
}

// Holds returns whether this MIG device is in use, directly or through the whole GPU.
func (u Usage) Holds(gpu int, s MIGDevice) bool {
	return u.All || u.GPUs[gpu] || u.Devices[gpu][s]
}

// Any returns whether any GPU or MIG device is in use.
func (u Usage) Any() bool {
	for gpu := range u.GPUs {
		if u.Busy(gpu) {
			return true
		}
	}
	return u.All
}

// Busy returns whether this GPU or one of its MIG devices is in use.
func (u Usage) Busy(gpu int) bool {
	if u.All || u.GPUs[gpu] {
		return true
	}
	for _, used := range u.Devices[gpu] {
		if used {
			return true
		}
	}
	return false
}
