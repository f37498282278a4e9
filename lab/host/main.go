// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Command host simulates a GPU node for NVIDIA's own agents in a sandbox: it writes the files of PCI bus and driver that they
// read, runs them, and returns their output. It reads one JSON document per line for each case, and prints one per line.
//
// Under the names nvidia-smi and nvidia-cuda-mps-control it acts as the programs that the agents call.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Case is a node and the agents to run on it, in this order.
type Case struct {
	// Files are the node's files by path: the PCI bus, the description for the NVML library, and the config files of the
	// agents.
	Files       map[string][]byte `json:"files"`
	Environment map[string]string `json:"environment"`
	// Parted are the configurations of the mig-parted file to apply, one after another.
	Parted []string `json:"parted"`
	GFD    bool     `json:"gfd"`
	Plugin bool     `json:"plugin"`
	MPS    bool     `json:"mps"`
}

// Result is the output of the agents for a case.
type Result struct {
	Parted []ProcessResult `json:"parted,omitempty"`
	GFD    *ProcessResult  `json:"gfd,omitempty"`
	Plugin *ProcessResult  `json:"plugin,omitempty"`
	MPS    *ProcessResult  `json:"mps,omitempty"`
	Served []string        `json:"served"`
	Labels string          `json:"labels"`
	Kinds  []Resource      `json:"resources"`
	// State is the state file of the NVML library: MIG modes and instances.
	State string `json:"state"`
}

func main() {
	if helper, known := helpers[filepath.Base(os.Args[0])]; known {
		os.Exit(helper(os.Args[1:]))
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "host:", err)
		os.Exit(1)
	}
}

func serve() error {
	kubelet, err := newKubelet()
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	results := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var c Case
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return err
		}
		result, err := c.run(kubelet)
		if err != nil {
			return err
		}
		if err := results.Encode(result); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (c *Case) run(kubelet *kubelet) (*Result, error) {
	if err := c.write(); err != nil {
		return nil, err
	}
	result := &Result{}
	for _, selected := range c.Parted {
		result.Parted = append(result.Parted, parted(selected, c.Environment))
	}
	if c.GFD {
		result.GFD, result.Labels = featureDiscovery(c.Environment)
	}
	if c.Plugin {
		result.Plugin, result.Kinds = devicePlugin(c.Environment, kubelet)
	}
	if c.MPS {
		result.MPS, result.Served = mpsDaemon(c.Environment)
	}
	state, err := os.ReadFile(stateFile)
	result.State = string(state)
	return result, err
}

// write replaces the files of the previous node with those of this one.
func (c *Case) write() error {
	for _, folder := range []string{"/sys", "/proc", "/mps", labFolder} {
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
	}
	if err := os.MkdirAll("/mps", 0o755); err != nil {
		return err
	}
	if err := driverFiles(); err != nil {
		return err
	}
	for path, content := range c.Files {
		if err := write(path, content); err != nil {
			return err
		}
	}
	return nil
}

func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}
