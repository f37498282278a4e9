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
		stopped, started := PauseLabels(before, false), ResumeLabels(before, false)
		if stopped[dcgm] != test.paused || started[dcgm] != test.resumed {
			t.Errorf("%s: %q, then %q", test.name, stopped[dcgm], started[dcgm])
		}
		if stopped[plugin] != "paused-for-mig-change" || started[nvsm] != "true" || len(stopped) != 5 || len(started) != 5 {
			t.Errorf("%s: %v, then %v", test.name, stopped, started)
		}
	}
}

func TestClientsArePausedOnlyIfTheirLabelIsSet(t *testing.T) {
	for _, test := range []struct {
		before  string
		clients bool
		paused  string
		resumed string
	}{
		{"true", true, "paused-for-mig-change", "true"},
		{"false", true, "false", "false"},
		{"", true, "", ""},
		{"true", false, "", ""},
	} {
		before := map[string]string{ClientLabel: test.before}
		stopped, started := PauseLabels(before, test.clients), ResumeLabels(before, test.clients)
		if stopped[ClientLabel] != test.paused || started[ClientLabel] != test.resumed {
			t.Errorf("%+v: %q, then %q", test, stopped[ClientLabel], started[ClientLabel])
		}
	}
}
