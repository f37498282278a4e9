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

// Paths in the sandbox; lab/agents.py mounts and writes the same ones.
const (
	labFolder   = "/lab"
	description = labFolder + "/gpus"
	stateFile   = description + ".state"
	configFile  = labFolder + "/config.yaml"
	partedFile  = labFolder + "/mig.yaml"
	machineFile = labFolder + "/machine"
	labelsFile  = labFolder + "/labels"
	mpsRunning  = labFolder + "/mps"
	programs    = "/agents"
)

// The time limit of an agent, which usually runs for a tenth of a second; a hanging agent is killed and causes an error.
const timeout = 60 * time.Second

// ProcessResult is the exit code of a program and the last error in its log.
type ProcessResult struct {
	Code  int    `json:"code"`
	Error string `json:"error,omitempty"`
	Log   string `json:"log,omitempty"`
}

var (
	klogError = regexp.MustCompile(`^E\d{4} \S+ +\d+ [^\]]+\] (.*)$`)
	// The misspelling is in the daemon's source.
	mpsServed   = regexp.MustCompile(`(?m)\] "Staring MPS daemon" resource="(.*)"$`)
	logrusError = regexp.MustCompile(`^time=\S+ level=(?:error|fatal) msg="(.*)"$`)
)

// logReader collects the log of a program and calls a function for each line.
type logReader struct {
	log, last string
}

func (t *logReader) read(from io.Reader, onLine func(line string)) {
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
		onLine(line)
	}
	t.log = log.String()
}

// execute runs an agent until it exits; onLine is called for each line of its log and can send it signals.
func execute(environment map[string]string, onLine func(*os.Process, string), program string, arguments ...string) ProcessResult {
	command := exec.Command(programs+"/"+program, arguments...)
	command.Env = []string{"PATH=" + programs, "LD_LIBRARY_PATH=/driver", "LAB_NVML=" + description}
	for name, value := range environment {
		command.Env = append(command.Env, name+"="+value)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return ProcessResult{Code: -1, Error: err.Error()}
	}
	defer read.Close()
	command.Stdout, command.Stderr = write, write
	err = command.Start()
	write.Close()
	if err != nil {
		return ProcessResult{Code: -1, Error: err.Error()}
	}
	stop := time.AfterFunc(timeout, func() { _ = command.Process.Kill() })
	defer stop.Stop()
	var log logReader
	log.read(read, func(line string) { onLine(command.Process, line) })
	err = command.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return ProcessResult{Code: -1, Error: err.Error()}
	}
	return ProcessResult{Code: command.ProcessState.ExitCode(), Error: log.last, Log: log.log}
}

func ignoreLine(*os.Process, string) {}

func featureDiscovery(environment map[string]string) (*ProcessResult, string) {
	run := execute(environment, ignoreLine, "gpu-feature-discovery", "--oneshot", "--no-timestamp", "--use-node-feature-api=false",
		"--machine-type-file="+machineFile, "--output-file="+labelsFile, "--config-file="+configFile)
	labels, err := os.ReadFile(labelsFile)
	if run.Code == 0 && err != nil {
		run.Error = err.Error()
	}
	return &run, string(labels)
}

// devicePlugin runs the plugin until it has registered all resources. Register returns only after the resource was
// inspected, and the plugin handles a signal only after it has started all of its servers. So the signal can be sent as
// soon as the plugin catches signals, without waiting.
func devicePlugin(environment map[string]string, kubelet *kubelet) (*ProcessResult, []Resource) {
	kubelet.reset()
	run := execute(environment, terminate("] Starting Plugins."), "nvidia-device-plugin", "--config-file="+configFile)
	return &run, kubelet.resources()
}

// mpsDaemon runs the MPS control daemon in the same way, and returns the resources whose replicas it serves.
func mpsDaemon(environment map[string]string) (*ProcessResult, []string) {
	run := execute(environment, terminate("] Starting Daemons."), "mps-control-daemon", "--config-file="+configFile)
	served := []string{}
	for _, match := range mpsServed.FindAllStringSubmatch(run.Log, -1) {
		served = append(served, match[1])
	}
	return &run, served
}

// terminate sends SIGTERM when an agent logs the line that shows that it catches signals.
func terminate(caught string) func(*os.Process, string) {
	return func(agent *os.Process, line string) {
		if strings.HasSuffix(line, caught) {
			_ = agent.Signal(syscall.SIGTERM)
		}
	}
}

func parted(selected string, environment map[string]string) ProcessResult {
	return execute(environment, ignoreLine, "nvidia-mig-parted", "apply", "--config-file="+partedFile, "--selected-config="+selected)
}
