// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"slices"
	"time"
)

// The labels of the MIG manager.
const (
	MIGConfigLabel = "nvidia.com/mig.config"
	MIGStateLabel  = "nvidia.com/mig.config.state"

	MIGStatePending   = "pending"
	MIGStateRebooting = "rebooting"
	MIGStateSuccess   = "success"
	MIGStateFailed    = "failed"

	paused = "paused-for-mig-change"
)

// DeployLabels are the deploy labels of the operands that nvidia-mig-manager v0.13 pauses.
var DeployLabels = []string{
	"nvidia.com/gpu.deploy.device-plugin",
	"nvidia.com/gpu.deploy.gpu-feature-discovery",
	"nvidia.com/gpu.deploy.dcgm-exporter",
	"nvidia.com/gpu.deploy.dcgm",
	"nvidia.com/gpu.deploy.nvsm",
}

// ClientLabel is the deploy label of the users' own DaemonSets on GPUs, which the operator sets since v26.7.
const ClientLabel = "nvidia.com/gpu.deploy.client"

// MIGClients are the apps whose pods must be deleted from the node, one after another; MIGValidators are deleted afterwards.
var (
	MIGClients    = []string{"nvidia-device-plugin-daemonset", "gpu-feature-discovery", "nvidia-dcgm-exporter", "nvidia-dcgm"}
	MIGValidators = []string{"nvidia-cuda-validator", "nvidia-device-plugin-validator"}
)

// The unscaled durations of the steps of a change. The timeouts are the MIG manager's own; the hardware's durations are
// chosen so that a change takes about a minute, as users report.
const (
	MIGCheck  = 2 * time.Second
	MIGPoll   = time.Second
	MIGWait   = 5 * time.Minute
	MIGSwitch = 20 * time.Second
	MIGCreate = 10 * time.Second
	Reboot    = 3 * time.Minute
)

// PauseLabels returns the labels that pause the operands of a node, and with clients the users' own GPU clients if their label
// is set; before has the current labels.
func PauseLabels(before map[string]string, clients bool) map[string]string {
	return deployLabels(before, paused, clients)
}

// ResumeLabels returns the labels that resume what PauseLabels paused; labels of operands that were not set before are also
// set.
func ResumeLabels(before map[string]string, clients bool) map[string]string {
	return deployLabels(before, "true", clients)
}

// deployLabels does not change labels that are set to "false".
func deployLabels(before map[string]string, value string, clients bool) map[string]string {
	labels, keys := map[string]string{}, DeployLabels
	if clients && before[ClientLabel] != "" {
		keys = append(slices.Clone(keys), ClientLabel)
	}
	for _, key := range keys {
		labels[key] = value
		if before[key] == "false" {
			labels[key] = "false"
		}
	}
	return labels
}
