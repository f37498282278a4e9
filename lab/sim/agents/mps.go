// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"slices"
	"time"

	"lab.invalid/sim/rules"
)

// retry is the interval at which a device plugin checks for its MPS control daemon.
const retry = 30 * time.Second

// mpsClient is a device plugin's knowledge of its MPS control daemon; after a successful check it does not check again.
type mpsClient struct {
	found bool
	next  time.Time
}

// mpsServed returns whether the plugin can register its resources: with MPS each needs the daemon.
func (r *reconciliation) mpsServed(plugin *agent) bool {
	c := &plugin.mps
	if c.found || !plugin.config.MPS() {
		return true
	}
	if time.Now().Before(c.next) {
		r.again.at(c.next)
		return false
	}
	served := r.mpsResources()
	c.found = true
	for resource := range plugin.offers {
		c.found = c.found && slices.Contains(served, resource)
	}
	if !c.found {
		c.next = time.Now().Add(r.scaled(retry))
		r.again.at(c.next)
		r.mpsMissing(plugin)
	}
	return c.found
}

// mpsResources returns the resources that the daemon of this node serves, if it runs.
func (r *reconciliation) mpsResources() []string {
	for _, pod := range r.pods {
		if a := r.memory.agents[string(pod.UID)]; pod.Operand == mpsDaemon && pod.Running() && a != nil && a.config != nil {
			return a.serves
		}
	}
	return nil
}

// mpsMissing writes the plugin's log while the daemon is missing; the pod does not change.
func (r *reconciliation) mpsMissing(plugin *agent) {
	for _, pod := range r.pods {
		if r.memory.agents[string(pod.UID)] == plugin {
			now := time.Now()
			r.logs.replace(pod, pod.Operand, []string{"E" + now.Format("0102 15:04:05.000000") + "       1 main.go:407] " + rules.NoMPSDaemon}, now)
		}
	}
}
