// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package machines

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Cloud is the cloud of an OpenShift cluster: what `lab/machine_api` writes for this program.
type Cloud struct {
	// Platform is the platform of the Infrastructure: AWS, Azure, GCP or VSphere.
	Platform string `json:"platform"`
	// Types contains the hardware by instance type. GCP's GPUs are part of the key: n1-standard-4+nvidia-tesla-t4x1. On vSphere the key is the
	// profile and the number of the vGPUs, grid_a100-10cx2, or nothing.
	Types map[string]Type `json:"types"`
	// Zones contains vSphere's failure domains: the resource pool of each zone.
	Zones map[string]string `json:"zones"`
	// Region is the region of the zones.
	Region string `json:"region"`
}

// Type is the hardware of a machine.
type Type struct {
	CPUs      int64       `json:"cpus"`
	MemoryMiB int64       `json:"memory_mib"`
	GPUs      int64       `json:"gpus"`
	Node      corev1.Node `json:"node"`
}

// instance is what a Machine's providerSpec asks for.
type instance struct {
	Type
	name, zone, region string
}

// LoadCloud reads a cloud from its file.
func LoadCloud(path string) (*Cloud, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	cloud := &Cloud{}
	return cloud, json.Unmarshal(text, cloud)
}

// instance returns the instance of a providerSpec; the error is the message of the cloud, after which a Machine is Failed.
func (c *Cloud) instance(provider map[string]any) (instance, error) {
	found := instance{region: c.Region}
	var unknown string
	switch c.Platform {
	case "AWS":
		found.name, found.zone = text(provider, "instanceType"), text(provider, "placement", "availabilityZone")
		found.region = text(provider, "placement", "region")
		unknown = "error launching instance: Invalid value '%s' for InstanceType."
	case "Azure":
		found.name, found.zone, found.region = text(provider, "vmSize"), text(provider, "zone"), text(provider, "location")
		if found.zone != "" {
			found.zone = found.region + "-" + found.zone
		}
		unknown = "failed to reconcile machine: the requested VM size %s is not available in the current region"
	case "GCP":
		found.name, found.zone, found.region = text(provider, "machineType"), text(provider, "zone"), text(provider, "region")
		if gpus, _ := provider["gpus"].([]any); len(gpus) == 1 {
			if gpu, valid := gpus[0].(map[string]any); valid {
				found.name = fmt.Sprintf("%s+%sx%d", found.name, text(gpu, "type"), number(gpu["count"]))
			}
		}
		unknown = "error launching instance: Invalid value for field 'resource.machineType': '%s'. The referenced resource does not exist."
	default:
		return found, fmt.Errorf("the machines of the platform %s are not simulated", c.Platform)
	}
	kind, known := c.Types[found.name]
	if !known {
		return found, fmt.Errorf(unknown, found.name)
	}
	found.Type = kind
	return found, nil
}

// providerID returns the id of an instance, as the cloud's controller manager writes it to the node.
func (c *Cloud) providerID(machine, uid string, in instance) string {
	switch c.Platform {
	case "AWS":
		return fmt.Sprintf("aws:///%s/i-0%s", in.zone, strings.ReplaceAll(uid, "-", "")[:16])
	case "Azure":
		return "azure:///subscriptions/lab/resourceGroups/lab-rg/providers/Microsoft.Compute/virtualMachines/" + machine
	}
	return fmt.Sprintf("gce://lab/%s/%s", in.zone, machine)
}

// nodeName returns the name of the node of a machine.
func (c *Cloud) nodeName(machine, address, region string) string {
	if c.Platform == "AWS" {
		return fmt.Sprintf("ip-%s.%s.compute.internal", strings.ReplaceAll(address, ".", "-"), region)
	}
	return machine
}

func text(of map[string]any, path ...string) string {
	for _, key := range path[:len(path)-1] {
		of, _ = of[key].(map[string]any)
	}
	value, _ := of[path[len(path)-1]].(string)
	return value
}

func number(value any) int64 {
	switch n := value.(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}
