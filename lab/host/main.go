// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Command host is a GPU node made of files, for NVIDIA's own agents: it is the only program in a sandbox beside them,
// writes what they read of PCI bus and driver, runs them, and tells what they said. One JSON document a line comes in
// for each case, one goes out.
//
// Called by another name it is a program that the agents call themselves: nvidia-smi, nvidia-cuda-mps-control.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Case is a node, and which agents are to be run on it, in this order.
type Case struct {
	// Files are the files below the root that make the node: the PCI bus and the description that the driver's
	// library reads; and what the agents are configured with.
	Files       map[string][]byte `json:"files"`
	Environment map[string]string `json:"environment"`
	// Parted are configurations of a file of mig-parted that are applied one after the other.
	Parted []string `json:"parted"`
	GFD    bool     `json:"gfd"`
	Plugin bool     `json:"plugin"`
	MPS    bool     `json:"mps"`
}

// Answer is what became of a case.
type Answer struct {
	Parted []Run     `json:"parted,omitempty"`
	GFD    *Run      `json:"gfd,omitempty"`
	Plugin *Run      `json:"plugin,omitempty"`
	MPS    *Run      `json:"mps,omitempty"`
	Served []string  `json:"served"`
	Labels string    `json:"labels"`
	Kinds  []Offered `json:"resources"`
	// State is what the driver's library has kept: MIG modes and instances.
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
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var c Case
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return err
		}
		answer, err := c.run(kubelet)
		if err != nil {
			return err
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (c *Case) run(kubelet *kubelet) (*Answer, error) {
	if err := c.write(); err != nil {
		return nil, err
	}
	answer := &Answer{}
	for _, selected := range c.Parted {
		answer.Parted = append(answer.Parted, parted(selected, c.Environment))
	}
	if c.GFD {
		answer.GFD, answer.Labels = featureDiscovery(c.Environment)
	}
	if c.Plugin {
		answer.Plugin, answer.Kinds = devicePlugin(c.Environment, kubelet)
	}
	if c.MPS {
		answer.MPS, answer.Served = mpsDaemon(c.Environment)
	}
	state, err := os.ReadFile(stateFile)
	answer.State = string(state)
	return answer, err
}

// write makes the node's files anew; of the node before nothing is left.
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
