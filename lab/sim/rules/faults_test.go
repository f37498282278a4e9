// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import "testing"

func TestFaultsAreAddedAndRemovedBesideOthers(t *testing.T) {
	for _, test := range []struct{ before, with, without string }{
		{"", "node-not-ready", ""},
		{"plugin-crash", "plugin-crash,node-not-ready", "plugin-crash"},
		{"kernel-hang=2,plugin-crash", "kernel-hang=2,plugin-crash,node-not-ready", "kernel-hang=2,plugin-crash"},
	} {
		if got := AddFault(test.before, NodeNotReady); got != test.with {
			t.Errorf("%q: with the fault %q, want %q", test.before, got, test.with)
		}
		if got := RemoveFault(test.with, NodeNotReady); got != test.without {
			t.Errorf("%q: without the fault %q, want %q", test.with, got, test.without)
		}
	}
}
