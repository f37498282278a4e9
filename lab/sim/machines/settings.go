// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package machines

import (
	"encoding/json"
	"os"
	"strconv"
	"time"

	"k8s.io/klog/v2"
)

// The faults by name; docs/lab-openshift.md describes them.
const (
	quota        = "quota"
	noCapacity   = "no-capacity"
	stuck        = "stuck-provisioning"
	neverJoins   = "never-joins"
	instanceLost = "instance-lost"
	stuckDelete  = "stuck-deleting"
	paused       = "paused"
	scalerPaused = "autoscaler-paused"
)

// settings are the faults and settings of the lab's clouds (lab/cloud_settings.py), as far as they are those of the machines.
type settings struct {
	Faults []struct {
		Name  string  `json:"name"`
		Group *string `json:"group"`
		Value *string `json:"value"`
	} `json:"faults"`
	Settings map[string]string `json:"settings"`
}

const prefix = "machines."

// loadSettings reads the file; without it there are no faults.
func loadSettings(path string) *settings {
	found := &settings{}
	content, err := os.ReadFile(path)
	if err != nil {
		return found
	}
	if err := json.Unmarshal(content, found); err != nil {
		klog.ErrorS(err, "ignoring invalid settings", "file", path)
	}
	return found
}

// fault returns whether a MachineSet has a fault, and its value.
func (s *settings) fault(name, set string) (string, bool) {
	for _, one := range s.Faults {
		if one.Name == prefix+name && (one.Group == nil || *one.Group == set) {
			if one.Value != nil {
				return *one.Value, true
			}
			return "", true
		}
	}
	return "", false
}

// seconds returns a setting as a duration.
func (s *settings) seconds(name string, otherwise time.Duration) time.Duration {
	if seconds, err := strconv.ParseFloat(s.Settings[prefix+name], 64); err == nil && seconds >= 0 {
		return time.Duration(seconds * float64(time.Second))
	}
	return otherwise
}
