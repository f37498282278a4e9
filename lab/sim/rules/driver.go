// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"cmp"
	"regexp"
	"strings"
	"time"
)

// DriverAnnotation contains the version of the driver that a driver pod has loaded on a node.
const DriverAnnotation = "lab.accel.gpu/driver"

// DriverConfigAnnotation contains the digest of the configuration with which that driver was loaded.
const DriverConfigAnnotation = "lab.accel.gpu/driver-config"

// AutoUpgradeAnnotation is "true" on the nodes whose drivers the operator upgrades.
const AutoUpgradeAnnotation = "nvidia.com/gpu-driver-upgrade-enabled"

const pausedForDriver = "paused-for-driver-upgrade"

// DriverLoad is the load time of a precompiled driver; a driver that is compiled first takes minutes.
const DriverLoad = 20 * time.Second

// The last line of a failed driver container's log: the kernel rejects the module (secure boot), or the GPUs are bound to another
// driver.
const (
	ModuleRejected = "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service"
	NoDevice       = "modprobe: ERROR: could not insert 'nvidia': No such device"
)

// DriverDependents are the DaemonSets whose pods wait in an init container until a driver is loaded (gpu-operator assets,
// init containers driver-validation and toolkit-validation).
var DriverDependents = append([]string{"nvidia-device-plugin-mps-control-daemon"}, DriverClients...)

// DriverLabels are the deploy labels of the operands that k8s-driver-manager v0.9 pauses before it unloads a driver (its
// internal components).
var DriverLabels = append([]string{
	"nvidia.com/gpu.deploy.operator-validator",
	"nvidia.com/gpu.deploy.container-toolkit",
	"nvidia.com/gpu.deploy.mig-manager",
}, DeployLabels...)

// DriverClients are the apps whose pods must be deleted from the node before a driver can be unloaded.
var DriverClients = append([]string{"nvidia-operator-validator", "nvidia-container-toolkit-daemonset", "nvidia-mig-manager"}, MIGClients...)

// PauseLabelsForDriver returns the labels that pause the running operands, and with clients the users' own GPU clients; the
// labels of others do not change.
func PauseLabelsForDriver(now map[string]string, clients bool) map[string]string {
	return replaceValues(now, "true", pausedForDriver, clients)
}

// ResumeLabelsAfterDriver returns the labels that resume the paused operands.
func ResumeLabelsAfterDriver(now map[string]string) map[string]string {
	return replaceValues(now, pausedForDriver, "true", true)
}

func replaceValues(now map[string]string, from, to string, clients bool) map[string]string {
	labels := map[string]string{}
	for _, key := range DriverLabels {
		if now[key] == from {
			labels[key] = to
		}
	}
	if clients && now[ClientLabel] == from {
		labels[ClientLabel] = to
	}
	return labels
}

// The failures of k8s-driver-manager when GPUs are in use: its last log line (cmd/driver-manager/main.go, uninstallDriver).
const (
	CannotEvict  = "cannot proceed until all GPU pods are drained from the node"
	CannotUnload = "failed to uninstall nvidia driver components: failed to unload driver: resource temporarily unavailable"
)

var driverVersion = regexp.MustCompile(`^\d+(\.\d+)+$`)

// DriverVersion returns the driver version in an image tag, to which the operator appends the node's system. It is empty
// if the image has no version, for example a digest or the branch of a precompiled driver.
func DriverVersion(image string) string {
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	version, _, _ := strings.Cut(tag, "-")
	if !driverVersion.MatchString(version) {
		return ""
	}
	return version
}

// DriverFailure returns why no driver can be loaded on a node, or an empty string.
func DriverFailure(h *Hardware, faults Faults) string {
	if message, broken := faults[DriverBroken]; broken {
		return cmp.Or(message, ModuleRejected)
	}
	if h != nil && h.Passthrough {
		return NoDevice
	}
	return ""
}

// WithDriver returns the hardware as another driver version reports it.
func (h *Hardware) WithDriver(version string) *Hardware {
	if h == nil || version == "" || version == h.Driver {
		return h
	}
	changed := *h
	changed.Driver = version
	branch, _, _ := strings.Cut(version, ".")
	if cuda, known := cudaOfBranch[branch]; known {
		changed.CUDA = cuda
	}
	return &changed
}
