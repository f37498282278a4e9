// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"encoding/json"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// The faults by name; docs/lab-vsphere.md describes them.
const (
	uploadSlow           = "upload-slow"
	uploadCut            = "upload-cut"
	uploadError          = "upload-error"
	uploadsRefused       = "uploads-refused"
	untrustedCertificate = "untrusted-certificate"
	leaseError           = "lease-error"
	leaseHangs           = "lease-hangs"
	datastoreFull        = "datastore-full"
	hostDisconnected     = "host-disconnected"
	sessionExpired       = "session-expired"
	sessionExpiresUpload = "session-expires-in-upload"
	taskHangs            = "task-hangs"
	taskFails            = "task-fails"
	unavailable          = "unavailable"
)

const prefix = "vsphere."

// settings are the faults and settings of the lab's clouds (lab/cloud_settings.py), as far as they are those of the vCenter.
type settings struct {
	Faults []struct {
		Name  string  `json:"name"`
		Group *string `json:"group"`
		Value *string `json:"value"`
	} `json:"faults"`
	Settings map[string]string `json:"settings"`
}

// jsonFile is a file that others change; it is read again only after a change.
type jsonFile[T any] struct {
	path  string
	mutex sync.Mutex
	state os.FileInfo
	value T
	// version counts the changes.
	version int
}

// read returns the content of the file, or the zero value without a file. A file that is not valid JSON has no effect.
func (f *jsonFile[T]) read() T {
	value, _ := f.versioned()
	return value
}

// versioned also returns a number that differs after each change.
func (f *jsonFile[T]) versioned() (T, int) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.path == "" {
		return f.value, f.version
	}
	var fresh T
	state, err := os.Stat(f.path)
	if err != nil {
		if f.state != nil {
			f.state, f.value = nil, fresh
			f.version++
		}
		return f.value, f.version
	}
	if f.state != nil && os.SameFile(f.state, state) && f.state.ModTime().Equal(state.ModTime()) && f.state.Size() == state.Size() {
		return f.value, f.version
	}
	f.state = state
	content, err := os.ReadFile(f.path)
	if err == nil {
		err = json.Unmarshal(content, &fresh)
	}
	if err != nil {
		log.Println("vcsim: ignoring", f.path, err)
		return f.value, f.version
	}
	f.value = fresh
	f.version++
	return f.value, f.version
}

// fault returns the value of a fault for an object, and whether it is injected.
func (s settings) fault(name, object string) (string, bool) {
	for _, one := range s.Faults {
		if one.Name == prefix+name && (one.Group == nil || *one.Group == object) {
			if one.Value == nil {
				return "", true
			}
			return *one.Value, true
		}
	}
	return "", false
}

// fault returns the value of a fault that applies to the whole vCenter, and whether it is injected.
func (c *vCenter) fault(name string) (string, bool) { return c.settings.read().fault(name, "") }

// seconds returns a setting as a duration.
func (c *vCenter) seconds(name string, otherwise time.Duration) time.Duration {
	if seconds, err := strconv.ParseFloat(c.settings.read().Settings[prefix+name], 64); err == nil && seconds >= 0 {
		return time.Duration(seconds * float64(time.Second))
	}
	return otherwise
}

// refresh applies the faults of the hosts after a change of the settings, and expires the sessions that are older than that fault.
func (c *vCenter) refresh(ctx *simulator.Context) {
	current, version := c.settings.versioned()
	if version == c.applied {
		return
	}
	c.applied = version
	_, expired := current.fault(sessionExpired, "")
	if expired && !c.expired {
		c.expireSessions()
	}
	c.expired = expired
	own := &simulator.Context{Context: ctx.Context, Map: ctx.Map}
	for _, host := range c.hosts {
		system := ctx.Map.Get(host.ref).(*simulator.HostSystem)
		_, wanted := current.fault(hostDisconnected, system.Name)
		if wanted == host.disconnected {
			continue
		}
		host.disconnected = wanted
		state := types.HostSystemConnectionStateConnected
		if wanted {
			state = types.HostSystemConnectionStateDisconnected
		}
		setConnection(own, system, state)
	}
}

func (c *vCenter) expireSessions() { c.sessionsFrom.Store(time.Now().UnixNano()) }

// isExpired returns whether a session began before the sessions expired.
func (c *vCenter) isExpired(session *simulator.Session) bool {
	return session.LoginTime.UnixNano() < c.sessionsFrom.Load()
}
