// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Package nvml contains stubs of the names in NVIDIA's bindings that mig-parted's parser needs to compile.
//
// The parser of mig-parted's files never accesses the hardware, but the packages around it can. The real bindings use C,
// and the lab's programs are built without a C compiler, so go.mod replaces the bindings with this module. If it is called,
// it reports that there is no GPU.
package nvml

// Return is the return code of a call.
type Return int

// The return codes that callers compare with; the numbers are those of nvml.h.
const (
	SUCCESS                Return = 0
	ERROR_INVALID_ARGUMENT Return = 2
	ERROR_NOT_SUPPORTED    Return = 3
	ERROR_NOT_FOUND        Return = 6
)

// Interface is the NVML library.
type Interface interface {
	Init() Return
	Shutdown() Return
	DeviceGetCount() (int, Return)
	DeviceGetHandleByIndex(index int) (Device, Return)
	DeviceGetHandleByUUID(uuid string) (Device, Return)
	Extensions() ExtendedInterface
}

// ExtendedInterface checks which functions a release of the library has.
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

// GpuInstance is a GPU instance of a GPU with MIG on.
type GpuInstance interface {
	GetComputeInstanceById(id int) (ComputeInstance, Return)
	GetComputeInstanceProfileInfo(profile, engine int) (ComputeInstanceProfileInfo, Return)
	GetComputeInstances(info *ComputeInstanceProfileInfo) ([]ComputeInstance, Return)
	GetInfo() (GpuInstanceInfo, Return)
}

// ComputeInstance is a compute instance of a GPU instance.
type ComputeInstance interface {
	GetInfo() (ComputeInstanceInfo, Return)
}

// GpuFabricInfoHandler returns one of the versions of a structure.
type GpuFabricInfoHandler struct{}

// V2 is not supported.
func (GpuFabricInfoHandler) V2() (GpuFabricInfo, Return) {
	return GpuFabricInfo{}, ERROR_NOT_SUPPORTED
}

// none is the NVML library of a machine without a GPU.
type none struct{}

// New returns a library that reports no GPU.
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
