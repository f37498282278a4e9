// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// Where the sandbox has what; lab/agents.py binds and fills the same.
const (
	labFolder   = "/lab"
	description = labFolder + "/gpus"
	stateFile   = description + ".state"
	configFile  = labFolder + "/config.yaml"
	partedFile  = labFolder + "/mig.yaml"
	machineFile = labFolder + "/machine"
	labelsFile  = labFolder + "/labels"
	mpsRuns     = labFolder + "/mps"
	programs    = "/agents"
)

// An agent works for a tenth of a second; one that hangs is killed, so that the case is an error and no standstill.
const patience = 60 * time.Second

// Run is how a program ended, and the last error that it logged.
type Run struct {
	Code  int    `json:"code"`
	Error string `json:"error,omitempty"`
	Log   string `json:"log,omitempty"`
}

var (
	klogError = regexp.MustCompile(`^E\d{4} \S+ +\d+ [^\]]+\] (.*)$`)
	// (sic)
	mpsServed   = regexp.MustCompile(`(?m)\] "Staring MPS daemon" resource="(.*)"$`)
	logrusError = regexp.MustCompile(`^time=\S+ level=(?:error|fatal) msg="(.*)"$`)
)

// told notes what a program logs. Whoever waits for a line hears of it when it comes.
type told struct {
	log, last string
}

func (t *told) read(from io.Reader, heard func(line string)) {
	var log bytes.Buffer
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		fmt.Fprintln(&log, line)
		for _, pattern := range []*regexp.Regexp{klogError, logrusError} {
			if match := pattern.FindStringSubmatch(line); match != nil {
				t.last = strings.ReplaceAll(match[1], `\"`, `"`)
			}
		}
		heard(line)
	}
	t.log = log.String()
}

// execute runs an agent to its end; heard sees each line of its log, and may send it signals.
func execute(environment map[string]string, heard func(*os.Process, string), program string, arguments ...string) Run {
	command := exec.Command(programs+"/"+program, arguments...)
	command.Env = []string{"PATH=" + programs, "LD_LIBRARY_PATH=/driver", "LAB_NVML=" + description}
	for name, value := range environment {
		command.Env = append(command.Env, name+"="+value)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return Run{Code: -1, Error: err.Error()}
	}
	defer read.Close()
	command.Stdout, command.Stderr = write, write
	err = command.Start()
	write.Close()
	if err != nil {
		return Run{Code: -1, Error: err.Error()}
	}
	stop := time.AfterFunc(patience, func() { _ = command.Process.Kill() })
	defer stop.Stop()
	var said told
	said.read(read, func(line string) { heard(command.Process, line) })
	err = command.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Run{Code: -1, Error: err.Error()}
	}
	return Run{Code: command.ProcessState.ExitCode(), Error: said.last, Log: said.log}
}

func nothing(*os.Process, string) {}

func featureDiscovery(environment map[string]string) (*Run, string) {
	run := execute(environment, nothing, "gpu-feature-discovery", "--oneshot", "--no-timestamp", "--use-node-feature-api=false",
		"--machine-type-file="+machineFile, "--output-file="+labelsFile, "--config-file="+configFile)
	labels, err := os.ReadFile(labelsFile)
	if run.Code == 0 && err != nil {
		run.Error = err.Error()
	}
	return &run, string(labels)
}

// devicePlugin runs the plugin until it has registered everything. Since Register is answered only when the resource
// has been looked at, and a plugin deals with a signal only after it has started all of its servers, the signal can be
// sent as soon as it is caught: nothing has to be waited for.
func devicePlugin(environment map[string]string, kubelet *kubelet) (*Run, []Offered) {
	kubelet.forget()
	run := execute(environment, terminate("] Starting Plugins."), "nvidia-device-plugin", "--config-file="+configFile)
	return &run, kubelet.offered()
}

// mpsDaemon runs the MPS control daemon as long, and returns the resources whose shares it serves.
func mpsDaemon(environment map[string]string) (*Run, []string) {
	run := execute(environment, terminate("] Starting Daemons."), "mps-control-daemon", "--config-file="+configFile)
	served := []string{}
	for _, match := range mpsServed.FindAllStringSubmatch(run.Log, -1) {
		served = append(served, match[1])
	}
	return &run, served
}

// terminate sends the signal to end when an agent has logged what it logs once it catches signals.
func terminate(caught string) func(*os.Process, string) {
	return func(agent *os.Process, line string) {
		if strings.HasSuffix(line, caught) {
			_ = agent.Signal(syscall.SIGTERM)
		}
	}
}

func parted(selected string, environment map[string]string) Run {
	return execute(environment, nothing, "nvidia-mig-parted", "apply", "--config-file="+partedFile, "--selected-config="+selected)
}
