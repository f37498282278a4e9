// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import "testing"

func TestPausedAndResumed(t *testing.T) {
	const plugin, dcgm, nvsm = "nvidia.com/gpu.deploy.device-plugin", "nvidia.com/gpu.deploy.dcgm", "nvidia.com/gpu.deploy.nvsm"
	for _, test := range []struct{ name, before, paused, resumed string }{
		{"running", "true", "paused-for-mig-change", "true"},
		{"switched off", "false", "false", "false"},
		{"never there", "", "paused-for-mig-change", "true"},
		{"left paused by another process", "paused-for-mig-change", "paused-for-mig-change", "true"},
	} {
		before := map[string]string{dcgm: test.before, plugin: "true"}
		stopped, started := PauseLabels(before), ResumeLabels(before)
		if stopped[dcgm] != test.paused || started[dcgm] != test.resumed {
			t.Errorf("%s: %q, then %q", test.name, stopped[dcgm], started[dcgm])
		}
		if stopped[plugin] != "paused-for-mig-change" || started[nvsm] != "true" || len(stopped) != 5 || len(started) != 5 {
			t.Errorf("%s: %v, then %v", test.name, stopped, started)
		}
	}
}
