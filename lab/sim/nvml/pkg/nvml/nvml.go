// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Package nvml has the names of NVIDIA's bindings that mig-parted's parser needs to compile, and none of their calls.
//
// The parser of mig-parted's files never asks the hardware, but the packages around it can. The real bindings are C,
// and the lab's programs are built without a C compiler; so this module stands in for them by a replace in go.mod.
// Should anything call it all the same, it says that there is no GPU.
package nvml

// Return is the outcome of a call.
type Return int

// The outcomes that somebody compares with; their numbers are those of nvml.h.
const (
	SUCCESS                Return = 0
	ERROR_INVALID_ARGUMENT Return = 2
	ERROR_NOT_SUPPORTED    Return = 3
	ERROR_NOT_FOUND        Return = 6
)

// Interface is the library.
type Interface interface {
	Init() Return
	Shutdown() Return
	DeviceGetCount() (int, Return)
	DeviceGetHandleByIndex(index int) (Device, Return)
	DeviceGetHandleByUUID(uuid string) (Device, Return)
	Extensions() ExtendedInterface
}

// ExtendedInterface looks up what a release of the library has.
type ExtendedInterface interface {
	LookupSymbol(name string) error
}

// Device is a GPU or a MIG device.
type Device interface {
	GetAddressingMode() (DeviceAddressingMode, Return)
	GetArchitecture() (DeviceArchitecture, Return)
	GetAttributes() (DeviceAttributes, Return)
	GetBrand() (BrandType, Return)
	GetComputeInstanceId() (int, Return)
	GetCudaComputeCapability() (major, minor int, ret Return)
	GetDeviceHandleFromMigDeviceHandle() (Device, Return)
	GetGpuFabricInfo() (GpuFabricInfo, Return)
	GetGpuFabricInfoV() GpuFabricInfoHandler
	GetGpuInstanceById(id int) (GpuInstance, Return)
	GetGpuInstanceId() (int, Return)
	GetGpuInstanceProfileInfo(profile int) (GpuInstanceProfileInfo, Return)
	GetGpuInstances(info *GpuInstanceProfileInfo) ([]GpuInstance, Return)
	GetMaxMigDeviceCount() (int, Return)
	GetMemoryInfo() (Memory, Return)
	GetMigDeviceHandleByIndex(index int) (Device, Return)
	GetMigMode() (current, pending int, ret Return)
	GetName() (string, Return)
	GetPciInfo() (PciInfo, Return)
	IsMigDeviceHandle() (bool, Return)
}

// GpuInstance is a slice of a GPU.
type GpuInstance interface {
	GetComputeInstanceById(id int) (ComputeInstance, Return)
	GetComputeInstanceProfileInfo(profile, engine int) (ComputeInstanceProfileInfo, Return)
	GetComputeInstances(info *ComputeInstanceProfileInfo) ([]ComputeInstance, Return)
	GetInfo() (GpuInstanceInfo, Return)
}

// ComputeInstance is a part of a slice.
type ComputeInstance interface {
	GetInfo() (ComputeInstanceInfo, Return)
}

// GpuFabricInfoHandler answers in one of the versions of a structure.
type GpuFabricInfoHandler struct{}

// V2 has nothing to say.
func (GpuFabricInfoHandler) V2() (GpuFabricInfo, Return) {
	return GpuFabricInfo{}, ERROR_NOT_SUPPORTED
}

// none is a machine without a GPU.
type none struct{}

// New returns a library that knows no GPU.
func New() Interface {
	return none{}
}

func (none) Init() Return                                  { return ERROR_NOT_SUPPORTED }
func (none) Shutdown() Return                              { return SUCCESS }
func (none) DeviceGetCount() (int, Return)                 { return 0, SUCCESS }
func (none) DeviceGetHandleByIndex(int) (Device, Return)   { return nil, ERROR_NOT_FOUND }
func (none) DeviceGetHandleByUUID(string) (Device, Return) { return nil, ERROR_NOT_FOUND }
func (none) Extensions() ExtendedInterface                 { return none{} }
func (none) LookupSymbol(string) error                     { return nil }
