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

// MIGAnnotation keeps what MIG has made of a node's GPUs; it is the hardware's memory.
const MIGAnnotation = "lab.accel.gpu/mig"

// MIGDevice is one MIG device: its profile, and the memory slice at which it begins.
type MIGDevice struct {
	Profile string
	Start   int
}

// MarshalText writes a device as 3g.20gb@4.
func (s MIGDevice) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%s@%d", s.Profile, s.Start), nil
}

// UnmarshalText reads what MarshalText wrote.
func (s *MIGDevice) UnmarshalText(text []byte) error {
	profile, start, found := strings.Cut(string(text), "@")
	at, err := strconv.Atoi(start)
	if !found || err != nil {
		return fmt.Errorf("%q is not a MIG device such as 3g.20gb@4", text)
	}
	s.Profile, s.Start = profile, at
	return nil
}

// Layout is the MIG state of a node's GPUs. A GPU that GPUs does not name has MIG off; one with an empty list has it on
// and no devices. Pending are modes that wait for a reset. Changed is when the devices last changed, in Unix seconds.
type Layout struct {
	GPUs    map[int][]MIGDevice `json:"gpus,omitempty"`
	Pending map[int]bool        `json:"pending,omitempty"`
	Changed int64               `json:"changed,omitempty"`
}

// ParseLayout reads the annotation of a node; a node without one has MIG off everywhere.
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

// Clone copies a layout, so that the copy can be changed.
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

// Equal tells whether two layouts are the same state of the same GPUs.
func (l Layout) Equal(other Layout) bool {
	return maps.EqualFunc(l.GPUs, other.GPUs, slices.Equal[[]MIGDevice]) && maps.Equal(l.Pending, other.Pending)
}

// Enabled tells whether a GPU has MIG on.
func (l Layout) Enabled(gpu int) bool {
	_, on := l.GPUs[gpu]
	return on
}

// Count is the number of MIG devices on all GPUs.
func (l Layout) Count() int {
	count := 0
	for _, devices := range l.GPUs {
		count += len(devices)
	}
	return count
}

// Unusable tells whether no program can run on any of a node's GPUs: all have MIG on, and none has a device.
func (l Layout) Unusable(h *Hardware) bool {
	return h != nil && len(l.GPUs) == h.GPUs && l.Count() == 0
}

// AfterReboot is what a reboot leaves: modes that were pending are in effect, and MIG devices are gone.
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

// MIGUUID names one MIG device: the same device at the same place of the same GPU is made with the same name again.
func MIGUUID(node string, gpu int, s MIGDevice) string {
	return "MIG-" + hashUUID(fmt.Sprintf("%s/%d/%s@%d", node, gpu, s.Profile, s.Start))
}

func hashUUID(name string) string {
	s := fmt.Sprintf("%x", sha256.Sum256([]byte(name)))
	return fmt.Sprintf("%s-%s-%s-%s-%s", s[:8], s[8:12], s[12:16], s[16:20], s[20:32])
}

// Usage is what running pods hold of a node's GPUs: whole ones, single MIG devices, or, by somebody unknown, everything.
type Usage struct {
	GPUs    map[int]bool
	Devices map[int]map[MIGDevice]bool
	All     bool
}

// UsageOf finds the GPUs and MIG devices behind device ids; those that are there no more hold nothing.
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

// Holds tells whether somebody uses this MIG device, be it by way of the whole GPU.
func (u Usage) Holds(gpu int, s MIGDevice) bool {
	return u.All || u.GPUs[gpu] || u.Devices[gpu][s]
}

// Busy tells whether somebody uses this GPU or a part of it.
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
