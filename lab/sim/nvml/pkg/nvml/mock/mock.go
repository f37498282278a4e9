// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Package mock exists because mig-parted's test helper imports it; it is never called.
package mock

import "github.com/NVIDIA/go-nvml/pkg/nvml"

// Interface is a stub of the mocked library.
type Interface struct {
	nvml.Interface
	InitFunc                   func() nvml.Return
	ShutdownFunc               func() nvml.Return
	DeviceGetCountFunc         func() (int, nvml.Return)
	DeviceGetHandleByIndexFunc func(index int) (nvml.Device, nvml.Return)
}

// Device is a stub of the mocked GPU.
type Device struct {
	nvml.Device
	GetNameFunc                   func() (string, nvml.Return)
	GetMigModeFunc                func() (int, int, nvml.Return)
	GetMemoryInfoFunc             func() (nvml.Memory, nvml.Return)
	GetGpuInstanceProfileInfoFunc func(profile int) (nvml.GpuInstanceProfileInfo, nvml.Return)
}
