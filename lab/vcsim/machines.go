// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// ReconfigVMTask refuses what a real vCenter refuses: a change of vGPUs while the VM runs, and a profile that no host of the cluster has.
func (c *vCenter) ReconfigVMTask(ctx *simulator.Context, req *types.ReconfigVM_Task) soap.HasFault {
	if hung := c.hung(ctx, req.This, "ReconfigVM_Task"); hung != nil {
		return &methods.ReconfigVM_TaskBody{Res: &types.ReconfigVM_TaskResponse{Returnval: *hung}}
	}
	body := new(methods.ReconfigVM_TaskBody)
	vm := machineOf(ctx, req.This)
	if vm == nil {
		body.Fault_ = simulator.Fault("", &types.ManagedObjectNotFound{Obj: req.This})
		return body
	}
	refuse := func(message string, fault types.BaseMethodFault) soap.HasFault {
		body.Res = &types.ReconfigVM_TaskResponse{Returnval: failed(ctx, vm, "reconfigVm", message, fault)}
		return body
	}
	for number, change := range req.Spec.DeviceChange {
		spec := change.GetVirtualDeviceConfigSpec()
		device, ok := spec.Device.(*types.VirtualPCIPassthrough)
		if !ok {
			continue
		}
		if vm.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOff {
			return refuse("The operation cannot be performed: the virtual machine is powered on.", &types.InvalidPowerState{
				RequestedState: types.VirtualMachinePowerStatePoweredOff, ExistingState: vm.Runtime.PowerState})
		}
		backing, ok := device.Backing.(*types.VirtualPCIPassthroughVmiopBackingInfo)
		if ok && spec.Operation == types.VirtualDeviceConfigSpecOperationAdd && !offers(c.clusterHosts(ctx, *vm.Runtime.Host), backing.Vgpu) {
			return refuse(invalidDevice(number))
		}
	}
	var found soap.HasFault
	ctx.WithLock(vm, func() { found = vm.ReconfigVMTask(ctx, req) })
	return found
}

func invalidDevice(number int) (string, types.BaseMethodFault) {
	return "Invalid configuration for device '" + strconv.Itoa(number) + "'.",
		&types.InvalidDeviceBacking{InvalidDeviceSpec: types.InvalidDeviceSpec{DeviceIndex: int32(number)}}
}

// DestroyTask removes a VM.
func (c *vCenter) DestroyTask(ctx *simulator.Context, req *types.Destroy_Task) soap.HasFault {
	if hung := c.hung(ctx, req.This, "Destroy_Task"); hung != nil {
		return &methods.Destroy_TaskBody{Res: &types.Destroy_TaskResponse{Returnval: *hung}}
	}
	vm := machineOf(ctx, req.This)
	if vm == nil {
		return &methods.Destroy_TaskBody{Fault_: simulator.Fault("", &types.ManagedObjectNotFound{Obj: req.This})}
	}
	var found soap.HasFault
	ctx.WithLock(vm, func() { found = vm.DestroyTask(ctx, req) })
	return found
}

// CloneVMTask keeps what the simulator's clone forgets and a real clone keeps: memory, CPUs, identifiers, firmware, boot options, memory
// lock, extraConfig, flags, annotation, product. The simulator also mixes up the keys of devices that the specification edits and removes.
func (c *vCenter) CloneVMTask(ctx *simulator.Context, req *types.CloneVM_Task) soap.HasFault {
	if hung := c.hung(ctx, req.This, "CloneVM_Task"); hung != nil {
		return &methods.CloneVM_TaskBody{Res: &types.CloneVM_TaskResponse{Returnval: *hung}}
	}
	source := machineOf(ctx, req.This)
	if source == nil {
		return &methods.CloneVM_TaskBody{Fault_: simulator.Fault("", &types.ManagedObjectNotFound{Obj: req.This})}
	}
	own := detached(ctx)
	if req.Spec.Config == nil {
		req.Spec.Config = new(types.VirtualMachineConfigSpec)
	}
	plain, wanted := *req, *req.Spec.Config
	plain.Spec.Location.DeviceChange, plain.Spec.PowerOn = nil, false
	bare := wanted
	bare.DeviceChange = nil
	plain.Spec.Config = &bare
	outer := simulator.CreateTask(c, "cloneVm", func(*simulator.Task) (types.AnyType, types.BaseMethodFault) {
		var started *methods.CloneVM_TaskBody
		own.WithLock(source, func() { started = source.CloneVMTask(own, &plain).(*methods.CloneVM_TaskBody) })
		result, fault := waitFor(own, started.Res.Returnval)
		if fault != nil {
			return nil, fault
		}
		clone := machineOf(own, result.(types.ManagedObjectReference))
		rest := inherit(source.Config, wanted)
		rest.DeviceChange = translated(source, clone, slices.Concat(req.Spec.Location.DeviceChange, wanted.DeviceChange))
		var body *methods.ReconfigVM_TaskBody
		own.WithLock(clone, func() {
			body = clone.ReconfigVMTask(own, &types.ReconfigVM_Task{This: clone.Self, Spec: rest}).(*methods.ReconfigVM_TaskBody)
		})
		if _, fault := waitFor(own, body.Res.Returnval); fault != nil {
			return nil, fault
		}
		clone.Config.VAppConfig = source.Config.VAppConfig
		showProduct(own, clone)
		if req.Spec.PowerOn {
			if _, fault := waitFor(own, c.powerOn(own, clone)); fault != nil {
				return nil, fault
			}
		}
		return clone.Self, nil
	})
	ref := outer.Run(own)
	outer.Info.Entity, outer.Info.DescriptionId, outer.Info.EntityName = &source.Self, "VirtualMachine.clone", source.Name
	return &methods.CloneVM_TaskBody{Res: &types.CloneVM_TaskResponse{Returnval: ref}}
}

func waitFor(ctx *simulator.Context, ref types.ManagedObjectReference) (types.AnyType, types.BaseMethodFault) {
	one := ctx.Map.Get(ref).(*simulator.Task)
	one.Wait()
	if one.Info.Error != nil {
		return nil, one.Info.Error.Fault
	}
	return one.Info.Result, nil
}

// inherit returns the specification of a clone, with everything that it does not change as in the source.
func inherit(source *types.VirtualMachineConfigInfo, wanted types.VirtualMachineConfigSpec) types.VirtualMachineConfigSpec {
	options := map[string]types.BaseOptionValue{}
	for _, one := range slices.Concat(source.ExtraConfig, wanted.ExtraConfig) {
		if key := one.GetOptionValue().Key; key != "govcsim" {
			options[key] = one
		}
	}
	rest := wanted
	rest.ExtraConfig = slices.Collect(maps.Values(options))
	if rest.Firmware == "" {
		rest.Firmware = source.Firmware
	}
	if rest.BootOptions == nil {
		rest.BootOptions = source.BootOptions
	}
	if rest.MemoryReservationLockedToMax == nil {
		rest.MemoryReservationLockedToMax = source.MemoryReservationLockedToMax
	}
	if rest.MemoryAllocation == nil {
		rest.MemoryAllocation = source.MemoryAllocation
	}
	if rest.Annotation == "" {
		rest.Annotation = source.Annotation
	}
	if rest.LatencySensitivity == nil {
		rest.LatencySensitivity = source.LatencySensitivity
	}
	return rest
}

// showProduct copies the first product of a VM's vApp into its summary, where the Machine Config Operator reads the version.
func showProduct(ctx *simulator.Context, vm *simulator.VirtualMachine) {
	if vm.Config.VAppConfig == nil || len(vm.Config.VAppConfig.GetVmConfigInfo().Product) == 0 {
		return
	}
	first := vm.Config.VAppConfig.GetVmConfigInfo().Product[0]
	ctx.Map.AtomicUpdate(ctx, vm, []types.PropertyChange{{Name: "summary.config.product", Val: &first}})
}

// translated returns device changes of a template's devices as changes of the clone's: the nth device of a type is the nth of the clone.
func translated(source, clone *simulator.VirtualMachine, changes []types.BaseVirtualDeviceConfigSpec) []types.BaseVirtualDeviceConfigSpec {
	var found []types.BaseVirtualDeviceConfigSpec
	for _, change := range changes {
		spec := *change.GetVirtualDeviceConfigSpec()
		if spec.Operation != types.VirtualDeviceConfigSpecOperationAdd {
			other := counterpart(source, clone, spec.Device.GetVirtualDevice().Key)
			if disk, ok := other.(*types.VirtualDisk); ok && spec.Operation == types.VirtualDeviceConfigSpecOperationEdit {
				grown := *disk // only its size
				grown.CapacityInKB = spec.Device.(*types.VirtualDisk).CapacityInKB
				grown.CapacityInBytes = grown.CapacityInKB * 1024
				other = &grown
			}
			if other != nil {
				spec.Device = other
			}
		}
		found = append(found, &spec)
	}
	return found
}

// counterpart returns the device of a clone for the device of its source with this key, or nil.
func counterpart(source, clone *simulator.VirtualMachine, key int32) types.BaseVirtualDevice {
	number := map[string]int{}
	for _, one := range source.Config.Hardware.Device {
		kind := fmt.Sprintf("%T", one)
		number[kind]++
		if one.GetVirtualDevice().Key != key {
			continue
		}
		seen := 0
		for _, other := range clone.Config.Hardware.Device {
			if fmt.Sprintf("%T", other) == kind {
				if seen++; seen == number[kind] {
					return other
				}
			}
		}
	}
	return nil
}
