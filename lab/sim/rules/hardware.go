// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Package rules contains the decisions of NVIDIA's agents and the kubelet as pure functions, without clock, client or files.
package rules

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Annotations of a simulated node.
const (
	HardwareAnnotation = "lab.accel.gpu/hardware"
	OSAnnotation       = "lab.accel.gpu/os"
	FaultsAnnotation   = "lab.accel.gpu/faults"
)

// Hardware is the data that a node's PCI bus and driver report; all GPUs of a node are of one model.
type Hardware struct {
	Product    string    `json:"product"`
	GPUs       int       `json:"gpus"`
	MemoryMiB  int       `json:"memory_mib"`
	Family     string    `json:"family"`
	Compute    string    `json:"compute"`
	MIGCapable bool      `json:"mig_capable"`
	MIG        *Geometry `json:"mig"`
	Driver     string    `json:"driver"`
	CUDA       string    `json:"cuda"`
	PCI        string    `json:"pci"`
	// PCIClass is 0302 (3D controller, also if it is empty) or 0300 (VGA controller, such as a Q-series vGPU).
	PCIClass string `json:"pci_class"`
	VGPU     *VGPU  `json:"vgpu"`
	Machine  string `json:"machine"`
	// TimeFactor is the factor by which operations on this machine take longer; 0 means 1.
	TimeFactor float64 `json:"time_factor"`
	// Passthrough means that the GPUs are bound to vfio-pci for virtual machines, so NVIDIA's driver finds none.
	Passthrough bool `json:"passthrough"`
}

// VGPU is the data that a guest gets about the host of its vGPU.
type VGPU struct {
	HostDriver string `json:"host_driver"`
	HostBranch string `json:"host_branch"`
	// Profile is the vGPU type, such as A100-10C; its last letter is the series, which determines the license.
	Profile string `json:"profile"`
}

// OS is the part of a node's os-release and kernel that NFD reports.
type OS struct {
	ID        string `json:"id"`
	VersionID string `json:"version_id"`
	Kernel    string `json:"kernel"`
	OSTree    string `json:"ostree_version"`
	// Modules are the loaded kernel modules that matter, separated by commas.
	Modules string `json:"modules"`
	// Services are the systemd services of the host that hold all GPUs, separated by commas.
	Services string `json:"services"`
}

// ParseHardware parses the hardware annotation; it returns nil for a node without annotation or GPUs.
func ParseHardware(annotation string) (*Hardware, error) {
	if annotation == "" {
		return nil, nil
	}
	var h Hardware
	if err := json.Unmarshal([]byte(annotation), &h); err != nil {
		return nil, fmt.Errorf("%s: %w", HardwareAnnotation, err)
	}
	if h.GPUs < 0 {
		return nil, fmt.Errorf("%s: gpus is %d", HardwareAnnotation, h.GPUs)
	}
	if h.TimeFactor < 0 {
		return nil, fmt.Errorf("%s: time_factor is %v", HardwareAnnotation, h.TimeFactor)
	}
	if h.GPUs == 0 {
		return nil, nil
	}
	return &h, nil
}

// ParseOS parses the os annotation; without it the worker finds no os-release.
func ParseOS(annotation string) (OS, error) {
	var o OS
	if annotation == "" {
		return o, nil
	}
	if err := json.Unmarshal([]byte(annotation), &o); err != nil {
		return OS{}, fmt.Errorf("%s: %w", OSAnnotation, err)
	}
	return o, nil
}

// UUID returns the UUID of a GPU: the same node and index give the same UUID in every lab.
func UUID(node string, index int) string {
	return "GPU-" + hashUUID(fmt.Sprintf("%s/%d", node, index))
}

// BootID returns the id of one boot of a machine; the same time gives the same id.
func BootID(machine string, milliseconds int64) string {
	return hashUUID(fmt.Sprintf("%s/boot/%d", machine, milliseconds))
}

// Faults are the faults of a node: their arguments by name.
type Faults map[string]string

// Names of the faults.
const (
	PluginCrash    = "plugin-crash"
	GFDStalled     = "gfd-stalled"
	NFDStalled     = "nfd-stalled"
	OperandPending = "operand-pending"
	ValidatorFails = "validator-fails"
	NodeNotReady   = "node-not-ready"
	MIGFailed      = "mig-failed"
	MIGPending     = "mig-pending"
	MIGReboot      = "mig-reboot"
	MIGWatchHung   = "mig-watch-hung"
	MIGPartial     = "mig-partial"
	MIGPaused      = "mig-paused"
	DriverBroken   = "driver-broken"
	// Of the programs that run on GPUs. The argument of the first two is the number of one GPU; without it all GPUs are affected.
	KernelWrong     = "kernel-wrong-result"
	KernelHang      = "kernel-hang"
	KernelDriverOld = "kernel-driver-old"
	LinkSlow        = "link-slow"
	// Of the license of a vGPU. The argument of the first one is the layer that fails: dns, tcp (without one) or tls; that of the second one is the number of seconds by which the node's clock is fast.
	LicenseUnreachable = "license-unreachable"
	LicenseClockSkew   = "license-clock-skew"
	LicenseDenied      = "license-denied"
)

// ParseFaults parses a comma-separated list of name[=argument].
func ParseFaults(annotation string) Faults {
	faults := Faults{}
	for _, item := range strings.Split(annotation, ",") {
		name, argument, _ := strings.Cut(strings.TrimSpace(item), "=")
		if name != "" {
			faults[name] = argument
		}
	}
	return faults
}

// AddFault returns the list with a fault, after the others.
func AddFault(annotation, name string) string {
	if annotation == "" {
		return name
	}
	return annotation + "," + name
}

// RemoveFault returns the list without a fault; the others stay.
func RemoveFault(annotation, name string) string {
	others := slices.DeleteFunc(strings.Split(annotation, ","), func(item string) bool { return ParseFaults(item).Has(name) })
	return strings.Join(others, ",")
}

// Has returns whether a fault is set.
func (f Faults) Has(name string) bool {
	_, has := f[name]
	return has
}

// Pending returns whether pods of this DaemonSet must not start.
func (f Faults) Pending(daemonSet string) bool {
	only, has := f[OperandPending]
	return has && (only == "" || only == daemonSet)
}
