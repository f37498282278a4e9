// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lab.invalid/sim/rules"
)

const (
	configManager     = "config-manager"
	configManagerInit = "config-manager-init"
)

// backOffReset is how long a container must have run for its back-off to begin anew.
const backOffReset = 10 * time.Minute

// agent is a pod of the device plugin, GFD or the MPS control daemon: its config-manager picks a file, its main process
// reads it, and config is nil as long as that does not run.
type agent struct {
	loaded
	started bool
	config  *rules.Config
	manager crash
	main    crash

	offers map[string][]string // what a device plugin registers
	labels map[string]string   // what GFD publishes
	serves []string            // the resources of an MPS control daemon
	mps    mpsClient
}

// loaded is what a pod has read; it is kept in an annotation of the pod.
type loaded struct {
	Label  string `json:"label"`
	Config string `json:"config"`
	Text   string `json:"text"`
	At     int64  `json:"at"`
}

// crash is a container that ends with an error, again and again.
type crash struct {
	failing  bool
	restarts int
	streak   int
	ended    time.Time
	retry    time.Time
	line     string
}

// fail notes one more exit. The first restart comes at once, so the first wait is already that of the second exit.
func (c *crash) fail(err error, v *reconciliation) {
	now := time.Now()
	if !c.failing && now.Sub(c.ended) > v.scaled(backOffReset) {
		c.streak = 0
	}
	c.failing, c.ended, c.line = true, now, err.Error()
	c.restarts++
	c.streak++
	c.retry = now.Add(v.scaled(rules.BackOff(c.streak)))
	v.again.at(c.retry)
}

// waiting tells whether the container still sits out its back-off.
func (c *crash) waiting(v *reconciliation) bool {
	if c.failing && time.Now().Before(c.retry) {
		v.again.at(c.retry)
		return true
	}
	return false
}

// reconcileAgent lets an agent's pod act: start, follow the node's label, crash or recover. It returns nil when the main process
// does not run.
func (v *reconciliation) reconcileAgent(pod *Pod) (*agent, error) {
	a := v.memory.agents[string(pod.UID)]
	if a == nil {
		a = &agent{}
		if pod.State != "" && json.Unmarshal([]byte(pod.State), &a.loaded) == nil {
			a.started = true
			a.resume(pod)
		}
		v.memory.agents[string(pod.UID)] = a
	}
	available, err := v.available(pod)
	if err != nil {
		return nil, nil // like the kubelet: nothing starts before the volume can be mounted
	}
	if !a.started {
		started, err := v.start(pod, a, available)
		if err != nil || !started {
			return nil, err
		}
	}
	if err := v.follow(pod, a, available); err != nil {
		return nil, err
	}
	if err := v.load(pod, a, available); err != nil {
		return nil, err
	}
	if err := v.report(pod, a); err != nil || a.config == nil {
		return nil, err
	}
	return a, nil
}

// resume takes the restart counts back from a pod's status, after the simulator itself was restarted.
func (a *agent) resume(pod *Pod) {
	for _, c := range pod.Mains {
		into := &a.main
		if c.Name == configManager {
			into = &a.manager
		}
		into.restarts, into.streak = int(c.Status.RestartCount), int(c.Status.RestartCount)
		into.failing = c.Status.State.Waiting != nil && c.Status.State.Waiting.Reason == "CrashLoopBackOff"
	}
}

// available is the folder of configs that a pod has mounted, nil when it was given none.
func (v *reconciliation) available(pod *Pod) (map[string]string, error) {
	if pod.ConfigMap == "" {
		return nil, nil
	}
	if a := v.memory.agents[string(pod.UID)]; !a.started && a.manager.restarts == 0 {
		v.remountVolumes(pod)
	}
	copied, present := v.mounted(pod)
	if a := v.memory.agents[string(pod.UID)]; !present && !a.started {
		return nil, errors.New("no such ConfigMap")
	}
	if copied == nil {
		copied = map[string]string{}
	}
	return copied, nil
}

func selection(pod *Pod) rules.Selection {
	s := rules.Selection{Default: pod.Env["DEFAULT_CONFIG"]}
	if fallbacks := pod.Env["FALLBACK_STRATEGIES"]; fallbacks != "" {
		s.Fallbacks = strings.Split(fallbacks, ",")
	}
	return s
}

// start is the init container: it must find a config before the pod may run.
func (v *reconciliation) start(pod *Pod, a *agent, available map[string]string) (bool, error) {
	if a.manager.waiting(v) {
		return false, nil
	}
	next := loaded{Label: v.node.Config, At: time.Now().Unix()}
	if available != nil {
		name, err := selection(pod).Select(v.node.Config, available)
		if err != nil {
			a.manager.fail(err, v)
			return false, v.initFails(pod, configManagerInit, &a.manager)
		}
		next.Config, next.Text = name, available[name]
	}
	if err := v.keep(pod, next); err != nil {
		return false, err
	}
	a.loaded, a.started, a.manager = next, true, crash{}
	return true, nil
}

// follow is the config-manager beside the main process: it acts when the node's label changes, and only then.
func (v *reconciliation) follow(pod *Pod, a *agent, available map[string]string) error {
	if available == nil || (v.node.Config == a.Label && !a.manager.failing) || a.manager.waiting(v) {
		return nil
	}
	name, err := selection(pod).Select(v.node.Config, available)
	if err != nil {
		a.manager.fail(err, v)
		return nil
	}
	next := a.loaded
	next.Label = v.node.Config
	if name != a.Config {
		next.Config, next.Text, next.At = name, available[name], time.Now().Unix()
		a.config = nil
	}
	if next != a.loaded {
		if err := v.keep(pod, next); err != nil {
			return err
		}
	}
	a.loaded, a.manager.failing = next, false
	return nil
}

// load is the main process reading its file: when told to, and whenever it is started again.
func (v *reconciliation) load(pod *Pod, a *agent, available map[string]string) error {
	fault := pod.Operand == devicePlugin && v.node.Faults.Has(rules.PluginCrash)
	if a.main.waiting(v) || (a.config != nil && !fault && !a.main.failing && pod.Operand != gfd) {
		return nil
	}
	if a.main.failing && a.Config != "" && available[a.Config] != a.Text {
		next := a.loaded
		next.Text, next.At = available[a.Config], time.Now().Unix()
		if err := v.keep(pod, next); err != nil {
			return err
		}
		a.loaded = next
	}
	config, err := v.loadConfig(pod, a)
	if fault {
		err = errors.New("error starting plugins: error getting plugins: failed to construct NVML resource managers: failed to initialize NVML: ERROR_UNKNOWN")
	}
	if err != nil {
		a.config = nil
		a.main.fail(err, v)
		return nil
	}
	if a.config == nil {
		a.mps = mpsClient{}
	}
	a.config, a.main.failing = config, false
	return nil
}

// loadConfig lets the main process read its file and look at the GPUs. GFD looks at them again and again.
func (v *reconciliation) loadConfig(pod *Pod, a *agent) (config *rules.Config, err error) {
	env := rules.Environment{MIGStrategy: pod.Env["MIG_STRATEGY"], MPSRoot: pod.Env["MPS_ROOT"]}
	hardware, layout := v.hardware(), v.layout()
	switch pod.Operand {
	case gfd:
		if config = a.config; config == nil || a.main.failing {
			config, err = rules.GFDConfig(a.Text, env)
		}
		if err == nil {
			a.labels, err = rules.Labels(hardware, layout, config)
		}
	case mpsDaemon:
		config, a.serves, err = rules.MPSConfig(a.Text, env, hardware, layout)
	default:
		config, err = rules.PluginConfig(a.Text, env)
		if err == nil {
			a.offers, err = rules.Devices(v.node.Name, hardware, layout, config)
		}
	}
	return config, err
}

// keep writes what the pod has loaded, which also lets kwok start it.
func (v *reconciliation) keep(pod *Pod, state loaded) error {
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return v.annotate(pod, stateAnnotation, string(text))
}

// report brings the pod's statuses to what its containers do, once kwok has started them.
func (v *reconciliation) report(pod *Pod, a *agent) error {
	if pod.Phase != corev1.PodRunning || (a.main.restarts == 0 && a.manager.restarts == 0) {
		return nil
	}
	if a.main.failing {
		v.logs.crashed(pod, pod.Operand, a.main.line, a.main.ended)
	}
	if a.manager.failing {
		v.logs.crashed(pod, configManager, a.manager.line, a.manager.ended)
	}
	return v.statuses(pod, map[string]*crash{pod.Operand: &a.main, configManager: &a.manager})
}

func backOff(pod *Pod, container string, c *crash) string {
	return fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", rules.BackOff(c.streak), container, pod.Name, pod.Namespace, pod.UID)
}
