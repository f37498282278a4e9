// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Package autoscaler contains the decisions of OpenShift's cluster autoscaler, as pure functions.
//
// The cluster autoscaler does not build from the Go module proxy. These rules are a stand-in that reads only what the real
// one reads. Sources, by release branch: openshift/kubernetes-autoscaler, cluster-autoscaler/cloudprovider/clusterapi
// (clusterapi_utils.go, clusterapi_unstructured.go, clusterapi_nodegroup.go), core/scaleup, core/static_autoscaler.go,
// processors/customresources/gpu_processor.go, processors/nodeinfosprovider, simulator/utilization;
// openshift/cluster-autoscaler-operator, pkg/controller.
//
// Not implemented: similar node groups are not balanced, pods' affinity to other pods, topology spread, volumes and host
// ports are ignored, DaemonSets' pods do not reduce the capacity of a future node, and DRA is ignored.
package autoscaler

import (
	"fmt"
	"strconv"
	"strings"
)

// Rules are the differences between the releases.
type Rules struct {
	// OldKeys and NewKeys are the families of capacity annotations that are read; the new ones win.
	OldKeys, NewKeys bool
	// Upstream means that OpenShift's changes are gone: the annotation gpu-type is the name of the counted resource instead of
	// nvidia.com/gpu, only labels with the prefixes of Cluster API are read from a template, and taints of the annotation
	// replace those of the template.
	Upstream bool
	// FixedSize means that a node group's minimum may equal its maximum.
	FixedSize bool
	// ReadyBy are the resources of which a node with the accelerator label needs one to count as ready, and Counted those that
	// the limits count.
	ReadyBy, Counted []string
}

// RulesOf returns the rules of a minor release such as 4.18.
func RulesOf(release string) (Rules, error) {
	major, minor, _ := strings.Cut(release, ".")
	x, errX := strconv.Atoi(major)
	y, errY := strconv.Atoi(minor)
	if errX != nil || errY != nil || x < 4 || (x == 4 && y < 16) {
		return Rules{}, fmt.Errorf("no rules for OpenShift %q: use 4.16 or newer", release)
	}
	since := func(major, minor int) bool { return x > major || (x == major && y >= minor) }
	rules := Rules{
		OldKeys:   !since(5, 0),
		NewKeys:   since(4, 19),
		Upstream:  since(5, 0),
		FixedSize: since(4, 17),
		ReadyBy:   []string{nvidiaGPU, "microsoft.com/directx"},
		Counted:   []string{nvidiaGPU},
	}
	if since(4, 22) {
		rules.ReadyBy = []string{nvidiaGPU, "habana.ai/gaudi", "gpu.intel.com/xe", "amd.com/gpu", "microsoft.com/directx"}
		rules.Counted = rules.ReadyBy
	}
	return rules, nil
}
