// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import "time"

// Labels of the MIG manager's protocol.
const (
	MIGConfigLabel = "nvidia.com/mig.config"
	MIGStateLabel  = "nvidia.com/mig.config.state"

	MIGStatePending   = "pending"
	MIGStateRebooting = "rebooting"
	MIGStateSuccess   = "success"
	MIGStateFailed    = "failed"

	paused = "paused-for-mig-change"
)

// DeployLabels decide which operands run on a node, as far as nvidia-mig-manager v0.13 pauses them.
var DeployLabels = []string{
	"nvidia.com/gpu.deploy.device-plugin",
	"nvidia.com/gpu.deploy.gpu-feature-discovery",
	"nvidia.com/gpu.deploy.dcgm-exporter",
	"nvidia.com/gpu.deploy.dcgm",
	"nvidia.com/gpu.deploy.nvsm",
}

// MIGClients are the apps whose pods must vanish from the node, one after the other; MIGValidators are then deleted.
var (
	MIGClients    = []string{"nvidia-device-plugin-daemonset", "gpu-feature-discovery", "nvidia-dcgm-exporter", "nvidia-dcgm"}
	MIGValidators = []string{"nvidia-cuda-validator", "nvidia-device-plugin-validator"}
)

// How long the steps of a change take in life. The limits are the MIG manager's own; how long the hardware takes is
// what makes a change last the minute or so that people report.
const (
	MIGCheck  = 2 * time.Second
	MIGPoll   = time.Second
	MIGWait   = 5 * time.Minute
	MIGSwitch = 20 * time.Second
	MIGCreate = 10 * time.Second
	Reboot    = 3 * time.Minute
)

// PauseLabels are the labels that stop the operands of a node; before is what the labels say now.
func PauseLabels(before map[string]string) map[string]string {
	return deployLabels(before, paused)
}

// ResumeLabels are the labels that let the operands run again; a label that was never there is there now.
func ResumeLabels(before map[string]string) map[string]string {
	return deployLabels(before, "true")
}

// deployLabels leaves what somebody has switched off as it is.
func deployLabels(before map[string]string, value string) map[string]string {
	labels := map[string]string{}
	for _, key := range DeployLabels {
		labels[key] = value
		if before[key] == "false" {
			labels[key] = "false"
		}
	}
	return labels
}
