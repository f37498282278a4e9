// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

const (
	// A VM without more than this window of 64-bit MMIO, in GB, needs no settings.
	defaultWindow = 32
	// settleTime is how long a power task takes at most, after which the host's free profiles are published.
	settleTime = 50 * time.Millisecond
)

// refusal is why a VM cannot start. Placement finds some reasons, in which case the VM is not attempted; the host finds the others.
type refusal struct {
	message   string
	fault     types.BaseMethodFault
	placement bool
}

// obstacle returns why a VM with vGPUs cannot start, or the host for it.
func (c *vCenter) obstacle(ctx *simulator.Context, vm *simulator.VirtualMachine) (*refusal, *gpuHost) {
	wanted := profilesOf(vm)
	if len(wanted) == 0 {
		return nil, nil
	}
	memory := vm.Config.MemoryAllocation
	locked := vm.Config.MemoryReservationLockedToMax != nil && *vm.Config.MemoryReservationLockedToMax
	if !locked && (memory == nil || memory.Reservation == nil || *memory.Reservation != int64(vm.Config.Hardware.MemoryMB)) {
		text := "Invalid memory setting: memory reservation (sched.mem.min) should be equal to memsize(" + strconv.Itoa(int(vm.Config.Hardware.MemoryMB)) + ")."
		return &refusal{message: text, fault: &types.GenericVmConfigFault{Reason: text}}, nil
	}
	hosts := c.clusterHosts(ctx, *vm.Runtime.Host)
	full := false
	for _, host := range hosts {
		system := ctx.Map.Get(host.ref).(*simulator.HostSystem)
		if system.Runtime.InMaintenanceMode || system.Runtime.ConnectionState != types.HostSystemConnectionStateConnected || !host.fits(wanted) {
			continue
		}
		used, _ := c.running(ctx, host)
		if !host.fits(append(used, wanted...)) {
			full = true
			continue
		}
		if need := host.window(wanted); need > defaultWindow {
			size, _ := strconv.ParseInt(option(vm, "pciPassthru.64bitMMIOSizeGB"), 10, 64)
			if !strings.EqualFold(option(vm, "pciPassthru.use64bitMMIO"), "TRUE") || size < need || vm.Config.Firmware != "efi" {
				reason := "PCI passthrough device 0 MMIO exceeds the 64-bit MMIO window"
				return &refusal{message: "Module 'DevicePowerOn' power on failed. " + reason, fault: &types.GenericVmConfigFault{Reason: reason}}, nil
			}
		}
		return nil, host
	}
	if full {
		text := "The amount of graphics resource available in the parent resource pool is insufficient for the operation."
		return &refusal{message: text, fault: &types.InsufficientGraphicsResourcesFault{}, placement: true}, nil
	}
	return &refusal{message: "No host is compatible with the virtual machine.", fault: &types.NoCompatibleHost{}, placement: true}, nil
}

// option returns a key of a VM's extraConfig.
func option(vm *simulator.VirtualMachine, key string) string {
	for _, one := range vm.Config.ExtraConfig {
		if value := one.GetOptionValue(); strings.EqualFold(value.Key, key) {
			text, _ := value.Value.(string)
			return text
		}
	}
	return ""
}

// report posts the event that vCenter shows for a VM that did not start.
func (c *vCenter) report(ctx *simulator.Context, vm *simulator.VirtualMachine, why *refusal) {
	one := &types.VmFailedToPowerOnEvent{Reason: types.LocalizedMethodFault{Fault: why.fault, LocalizedMessage: why.message}}
	one.Vm = &types.VmEventArgument{EntityEventArgument: types.EntityEventArgument{Name: vm.Name}, Vm: vm.Self}
	one.CreatedTime = time.Now()
	one.FullFormattedMessage = "Failed to power on " + vm.Name + ". " + why.message
	own := detached(ctx)
	manager := ctx.Map.EventManager()
	own.WithLock(manager, func() { manager.PostEvent(own, &types.PostEvent{EventToPost: one}) })
}

// powerOn starts a VM on the host that has room for its vGPUs, and returns the task.
func (c *vCenter) powerOn(ctx *simulator.Context, vm *simulator.VirtualMachine) types.ManagedObjectReference {
	why, host := c.obstacle(ctx, vm)
	if why != nil {
		c.report(ctx, vm, why)
		return failed(ctx, vm, "powerOn", why.message, why.fault)
	}
	if host != nil && *vm.Runtime.Host != host.ref {
		moveTo(ctx, vm, host.ref)
	}
	var body *methods.PowerOnVM_TaskBody
	ctx.WithLock(vm, func() {
		body = vm.PowerOnVMTask(ctx, &types.PowerOnVM_Task{This: vm.Self}).(*methods.PowerOnVM_TaskBody)
	})
	if body.Fault_ != nil {
		return failed(ctx, vm, "powerOn", body.Fault_.String, body.Fault_.VimFault().(types.BaseMethodFault))
	}
	if host != nil {
		time.AfterFunc(settleTime, func() { c.publish(&simulator.Context{Map: ctx.Map}, host) })
	}
	return body.Res.Returnval
}

func moveTo(ctx *simulator.Context, vm *simulator.VirtualMachine, host types.ManagedObjectReference) {
	old := ctx.Map.Get(*vm.Runtime.Host).(*simulator.HostSystem)
	ctx.Map.RemoveReference(ctx, old, &old.Vm, vm.Self)
	fresh := ctx.Map.Get(host).(*simulator.HostSystem)
	ctx.Map.AddReference(ctx, fresh, &fresh.Vm, vm.Self)
	ctx.Map.AtomicUpdate(ctx, vm, []types.PropertyChange{{Name: "runtime.host", Val: host}, {Name: "summary.runtime.host", Val: host}})
}

// PowerOnVMTask starts a VM.
func (c *vCenter) PowerOnVMTask(ctx *simulator.Context, req *types.PowerOnVM_Task) soap.HasFault {
	if hung := c.hung(ctx, req.This, "PowerOnVM_Task"); hung != nil {
		return &methods.PowerOnVM_TaskBody{Res: &types.PowerOnVM_TaskResponse{Returnval: *hung}}
	}
	vm := machineOf(ctx, req.This)
	if vm == nil {
		return &methods.PowerOnVM_TaskBody{Fault_: simulator.Fault("", &types.ManagedObjectNotFound{Obj: req.This})}
	}
	return &methods.PowerOnVM_TaskBody{Res: &types.PowerOnVM_TaskResponse{Returnval: c.powerOn(ctx, vm)}}
}

// PowerOffVMTask stops a VM.
func (c *vCenter) PowerOffVMTask(ctx *simulator.Context, req *types.PowerOffVM_Task) soap.HasFault {
	if hung := c.hung(ctx, req.This, "PowerOffVM_Task"); hung != nil {
		return &methods.PowerOffVM_TaskBody{Res: &types.PowerOffVM_TaskResponse{Returnval: *hung}}
	}
	vm := machineOf(ctx, req.This)
	if vm == nil {
		return &methods.PowerOffVM_TaskBody{Fault_: simulator.Fault("", &types.ManagedObjectNotFound{Obj: req.This})}
	}
	var found soap.HasFault
	ctx.WithLock(vm, func() { found = vm.PowerOffVMTask(ctx, req) })
	if host := c.hosts[vm.Runtime.Host.Value]; host != nil {
		time.AfterFunc(settleTime, func() { c.publish(&simulator.Context{Map: ctx.Map}, host) })
	}
	return found
}

// PowerOnMultiVMTask chooses hosts as DRS does; its result has a task, or a fault, for each VM, and the task itself succeeds.
func (c *vCenter) PowerOnMultiVMTask(ctx *simulator.Context, req *types.PowerOnMultiVM_Task) soap.HasFault {
	if hung := c.hung(ctx, req.This, "PowerOnMultiVM_Task"); hung != nil {
		return &methods.PowerOnMultiVM_TaskBody{Res: &types.PowerOnMultiVM_TaskResponse{Returnval: *hung}}
	}
	result := types.ClusterPowerOnVmResult{}
	for _, ref := range req.Vm {
		vm := machineOf(ctx, ref)
		if vm == nil {
			return &methods.PowerOnMultiVM_TaskBody{Fault_: simulator.Fault("", &types.ManagedObjectNotFound{Obj: ref})}
		}
		if why, _ := c.obstacle(ctx, vm); why != nil && why.placement {
			c.report(ctx, vm, why)
			result.NotAttempted = append(result.NotAttempted, types.ClusterNotAttemptedVmInfo{
				Vm: ref, Fault: types.LocalizedMethodFault{Fault: why.fault, LocalizedMessage: why.message}})
			continue
		}
		started := c.powerOn(detached(ctx), vm)
		result.Attempted = append(result.Attempted, types.ClusterAttemptedVmInfo{Vm: ref, Task: &started})
	}
	center := ctx.Map.Get(req.This).(*simulator.Datacenter)
	one := simulator.CreateTask(center, "powerOnMultiVM", func(*simulator.Task) (types.AnyType, types.BaseMethodFault) { return result, nil })
	return &methods.PowerOnMultiVM_TaskBody{Res: &types.PowerOnMultiVM_TaskResponse{Returnval: one.Run(ctx)}}
}
