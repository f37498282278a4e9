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

// backOffReset is how long a container must run before its back-off is reset.
const backOffReset = 10 * time.Minute

// agent is a pod of the device plugin, GFD or the MPS control daemon: its config-manager selects a file, and its main
// process reads it; config is nil while the main process is not running.
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

// loaded is the configuration that a pod has read; it is stored in an annotation of the pod.
type loaded struct {
	Label  string `json:"label"`
	Config string `json:"config"`
	Text   string `json:"text"`
	At     int64  `json:"at"`
}

// crash is the state of a crash-looping container.
type crash struct {
	failing  bool
	restarts int
	streak   int
	ended    time.Time
	retry    time.Time
	line     string
}

// fail records one more exit. The kubelet restarts immediately after the first exit, so the first wait follows the second.
func (c *crash) fail(err error, r *reconciliation) {
	now := time.Now()
	if !c.failing && now.Sub(c.ended) > r.scaled(backOffReset) {
		c.streak = 0
	}
	c.failing, c.ended, c.line = true, now, err.Error()
	c.restarts++
	c.streak++
	c.retry = now.Add(r.scaled(rules.BackOff(c.streak)))
	r.again.at(c.retry)
}

// waiting returns whether the container is in back-off.
func (c *crash) waiting(r *reconciliation) bool {
	if c.failing && time.Now().Before(c.retry) {
		r.again.at(c.retry)
		return true
	}
	return false
}

// reconcileAgent performs the actions of an agent's pod: start, follow the node's label, crash or recover. It returns nil
// if the main process is not running.
func (r *reconciliation) reconcileAgent(pod *Pod) (*agent, error) {
	a := r.memory.agents[string(pod.UID)]
	if a == nil {
		a = &agent{}
		if pod.State != "" && json.Unmarshal([]byte(pod.State), &a.loaded) == nil {
			a.started = true
			a.resume(pod)
		}
		r.memory.agents[string(pod.UID)] = a
	}
	available, err := r.available(pod)
	if err != nil {
		return nil, nil // like the kubelet: the pod does not start before the volume can be mounted
	}
	if !a.started {
		started, err := r.start(pod, a, available)
		if err != nil || !started {
			return nil, err
		}
	}
	if err := r.follow(pod, a, available); err != nil {
		return nil, err
	}
	if err := r.load(pod, a, available); err != nil {
		return nil, err
	}
	if err := r.report(pod, a); err != nil || a.config == nil {
		return nil, err
	}
	return a, nil
}

// resume restores the restart counts from a pod's status after a restart of the simulator.
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

// available returns the configs in the folder that a pod has mounted, or nil if it mounts none.
func (r *reconciliation) available(pod *Pod) (map[string]string, error) {
	if pod.ConfigMap == "" {
		return nil, nil
	}
	if a := r.memory.agents[string(pod.UID)]; !a.started && a.manager.restarts == 0 {
		r.remountVolumes(pod)
	}
	copied, present := r.mounted(pod)
	if a := r.memory.agents[string(pod.UID)]; !present && !a.started {
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

// start is the init container: it must find a config before the pod can run.
func (r *reconciliation) start(pod *Pod, a *agent, available map[string]string) (bool, error) {
	if a.manager.waiting(r) {
		return false, nil
	}
	next := loaded{Label: r.node.Config, At: time.Now().Unix()}
	if available != nil {
		name, err := selection(pod).Select(r.node.Config, available)
		if err != nil {
			a.manager.fail(err, r)
			return false, r.initFails(pod, configManagerInit, &a.manager)
		}
		next.Config, next.Text = name, available[name]
	}
	if err := r.keep(pod, next); err != nil {
		return false, err
	}
	a.loaded, a.started, a.manager = next, true, crash{}
	return true, nil
}

// follow is the config-manager sidecar: it acts only when the node's label changes.
func (r *reconciliation) follow(pod *Pod, a *agent, available map[string]string) error {
	if available == nil || (r.node.Config == a.Label && !a.manager.failing) || a.manager.waiting(r) {
		return nil
	}
	name, err := selection(pod).Select(r.node.Config, available)
	if err != nil {
		a.manager.fail(err, r)
		return nil
	}
	next := a.loaded
	next.Label = r.node.Config
	if name != a.Config {
		next.Config, next.Text, next.At = name, available[name], time.Now().Unix()
		a.config = nil
	}
	if next != a.loaded {
		if err := r.keep(pod, next); err != nil {
			return err
		}
	}
	a.loaded, a.manager.failing = next, false
	return nil
}

// load reads the main process's file, on request of the config-manager and after each restart.
func (r *reconciliation) load(pod *Pod, a *agent, available map[string]string) error {
	fault := pod.Operand == devicePlugin && r.node.Faults.Has(rules.PluginCrash)
	if a.main.waiting(r) || (a.config != nil && !fault && !a.main.failing && pod.Operand != gfd) {
		return nil
	}
	if a.main.failing && a.Config != "" && available[a.Config] != a.Text {
		next := a.loaded
		next.Text, next.At = available[a.Config], time.Now().Unix()
		if err := r.keep(pod, next); err != nil {
			return err
		}
		a.loaded = next
	}
	config, err := r.loadConfig(pod, a)
	if fault {
		err = errors.New("error starting plugins: error getting plugins: failed to construct NVML resource managers: failed to initialize NVML: ERROR_UNKNOWN")
	}
	if err != nil {
		a.config = nil
		a.main.fail(err, r)
		return nil
	}
	if a.config == nil {
		a.mps = mpsClient{}
	}
	a.config, a.main.failing = config, false
	return nil
}

// loadConfig parses the file and queries the GPUs, like the main process. GFD queries them repeatedly.
func (r *reconciliation) loadConfig(pod *Pod, a *agent) (config *rules.Config, err error) {
	env := rules.Environment{MIGStrategy: pod.Env["MIG_STRATEGY"], MPSRoot: pod.Env["MPS_ROOT"]}
	hardware, layout := r.hardware(), r.layout()
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
			a.offers, err = rules.Devices(r.node.Name, hardware, layout, config)
		}
	}
	return config, err
}

// keep stores the loaded configuration in the pod's annotation, which also lets kwok start the pod.
func (r *reconciliation) keep(pod *Pod, state loaded) error {
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return r.annotate(pod, stateAnnotation, string(text))
}

// report updates the container statuses of the pod after kwok has started it.
func (r *reconciliation) report(pod *Pod, a *agent) error {
	if pod.Phase != corev1.PodRunning || (a.main.restarts == 0 && a.manager.restarts == 0) {
		return nil
	}
	if a.main.failing {
		r.logs.crashed(pod, pod.Operand, a.main.line, a.main.ended)
	}
	if a.manager.failing {
		r.logs.crashed(pod, configManager, a.manager.line, a.manager.ended)
	}
	return r.statuses(pod, map[string]*crash{pod.Operand: &a.main, configManager: &a.manager})
}

func backOff(pod *Pod, container string, c *crash) string {
	return fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", rules.BackOff(c.streak), container, pod.Name, pod.Namespace, pod.UID)
}
