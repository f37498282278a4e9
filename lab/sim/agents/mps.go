// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"slices"
	"time"

	"lab.invalid/sim/rules"
)

// retry is how long a device plugin waits before it looks for its MPS control daemon again.
const retry = 30 * time.Second

// mpsClient is what a device plugin knows of its MPS control daemon: once found, it is not looked for again.
type mpsClient struct {
	found bool
	next  time.Time
}

// mpsServed tells whether the plugin may register: under MPS every resource needs its daemon.
func (v *reconciliation) mpsServed(plugin *agent) bool {
	c := &plugin.mps
	if c.found || !plugin.config.MPS() {
		return true
	}
	if time.Now().Before(c.next) {
		v.again.at(c.next)
		return false
	}
	served := v.mpsResources()
	c.found = true
	for resource := range plugin.offers {
		c.found = c.found && slices.Contains(served, resource)
	}
	if !c.found {
		c.next = time.Now().Add(v.scaled(retry))
		v.again.at(c.next)
		v.mpsMissing(plugin)
	}
	return c.found
}

// mpsResources are the resources of the daemon of this node, if one runs.
func (v *reconciliation) mpsResources() []string {
	for _, pod := range v.pods {
		if a := v.memory.agents[string(pod.UID)]; pod.Operand == mpsDaemon && pod.Running() && a != nil && a.config != nil {
			return a.serves
		}
	}
	return nil
}

// mpsMissing is what the plugin's log says meanwhile; the pod itself stays as it is.
func (v *reconciliation) mpsMissing(plugin *agent) {
	for _, pod := range v.pods {
		if v.memory.agents[string(pod.UID)] == plugin {
			now := time.Now()
			v.logs.replace(pod, pod.Operand, []string{"E" + now.Format("0102 15:04:05.000000") + "       1 main.go:407] " + rules.NoMPSDaemon}, now)
		}
	}
}
