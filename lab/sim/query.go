// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"lab.invalid/sim/rules"
)

// node is the node name in the ids of devices; each query is about a single node.
const node = "node"

// query is a node and the configuration of its agents.
type query struct {
	Hardware json.RawMessage `json:"hardware"`
	MIG      json.RawMessage `json:"mig"`
	// Config is the device plugin's and gpu-feature-discovery's config file.
	Config      string `json:"config"`
	MIGStrategy string `json:"strategy"`
	MPSRoot     string `json:"mps_root"`
	MPSDaemon   bool   `json:"mps_daemon"`
	// Parted is a mig-parted config file; the configurations in Apply are applied before the agents run.
	Parted string   `json:"parted"`
	Apply  []string `json:"apply"`
	// Busy are the GPUs in use.
	Busy []int `json:"busy"`
}

// result is the output of the agents. An error is the last line that an agent would log; the other fields are then empty.
type result struct {
	Applied       []string            `json:"applied"`
	MIG           rules.Layout        `json:"mig"`
	Labels        map[string]string   `json:"labels"`
	LabelsError   string              `json:"labels_error"`
	Resources     map[string][]string `json:"resources"`
	ResourceError string              `json:"resources_error"`
	// TwoError is, by resource, the error for a container that requests two of it.
	TwoError map[string]string `json:"two_error"`
	// Visible are, by resource, the distinct devices visible in a container with the first two of it.
	Visible map[string][]string `json:"visible"`
	// Served are the resources whose replicas an MPS control daemon serves.
	Served      []string `json:"served"`
	ServedError string   `json:"served_error"`
	// Places maps each id to its GPU or MIG device: 0, 0/3g.71gb@4.
	Places map[string]string `json:"places"`
}

// runQueries reads queries, one JSON document per line, and prints what NVIDIA's agents would do on each node.
func runQueries([]string) error {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	out := bufio.NewWriter(os.Stdout)
	results := json.NewEncoder(out)
	for lines.Scan() {
		var q query
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return err
		}
		a, err := q.result()
		if err != nil {
			return err
		}
		if err := results.Encode(a); err != nil {
			return err
		}
	}
	return errors.Join(lines.Err(), out.Flush())
}

func (q *query) result() (*result, error) {
	hardware, err := rules.ParseHardware(string(q.Hardware))
	if err != nil {
		return nil, err
	}
	layout, err := rules.ParseLayout(string(q.MIG))
	if err != nil {
		return nil, err
	}
	a := &result{Labels: map[string]string{}, Resources: map[string][]string{}, TwoError: map[string]string{}, Visible: map[string][]string{}, Places: map[string]string{}}
	layout = q.apply(hardware, layout, a)
	q.labels(hardware, layout, a)
	q.resources(hardware, layout, a)
	_, a.Served, err = rules.MPSConfig(q.Config, q.environment(), hardware, layout)
	a.ServedError = text(err)
	a.MIG = layout
	for gpu := range hardware.GPUs {
		a.Places[rules.UUID(node, gpu)] = fmt.Sprint(gpu)
		for _, s := range layout.GPUs[gpu] {
			a.Places[rules.MIGUUID(node, gpu, s)] = fmt.Sprintf("%d/%s@%d", gpu, s.Profile, s.Start)
		}
	}
	return a, nil
}

// apply runs mig-parted for each configuration in Apply and records the errors.
func (q *query) apply(h *rules.Hardware, layout rules.Layout, a *result) rules.Layout {
	use := rules.Usage{GPUs: map[int]bool{}}
	for _, gpu := range q.Busy {
		use.GPUs[gpu] = true
	}
	for _, name := range q.Apply {
		entries, err := rules.MIGConfig(map[string]string{rules.MIGConfigKey: q.Parted}, name)
		if err == nil {
			parted := rules.MIGParted{Hardware: h, Layout: layout, Use: use}
			err = parted.Apply(entries)
			layout = parted.Layout
		}
		a.Applied = append(a.Applied, text(err))
	}
	return layout
}

func (q *query) environment() rules.Environment {
	return rules.Environment{MIGStrategy: q.MIGStrategy, MPSRoot: q.MPSRoot}
}

func (q *query) labels(h *rules.Hardware, layout rules.Layout, a *result) {
	config, err := rules.GFDConfig(q.Config, q.environment())
	if err == nil {
		a.Labels, err = rules.Labels(h, layout, config)
	}
	a.LabelsError = text(err)
}

func (q *query) resources(h *rules.Hardware, layout rules.Layout, a *result) {
	config, err := rules.PluginConfig(q.Config, q.environment())
	if err == nil {
		a.Resources, err = rules.Devices(node, h, layout, config)
	}
	if err == nil && config.MPS() && !q.MPSDaemon {
		a.Resources, err = nil, errors.New(rules.NoMPSDaemon)
	}
	a.ResourceError = text(err)
	for resource, ids := range a.Resources {
		a.Visible[resource] = rules.Visible(map[string][]string{resource: ids[:min(len(ids), 2)]})
		if config.ByIndex {
			for at, id := range a.Visible[resource] {
				a.Visible[resource][at] = rules.Index(node, h, layout, id)
			}
		}
		if len(ids) < 2 {
			continue
		}
		pool := rules.DevicePool{Healthy: a.Resources, OnePerRequest: config.OnePerRequest()}
		request := []rules.DeviceRequest{{Container: "node", Resource: resource, Count: 2}}
		if _, err := pool.Allocate(request); err != nil {
			a.TwoError[resource] = err.Error()
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
