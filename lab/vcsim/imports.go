// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/ovf"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

const (
	// leaseTime is how long a lease lives without a report of its progress.
	leaseTime = 300 * time.Second
	// creationTime is how long the creation of an import's VM takes at most.
	creationTime = 5 * time.Second
	pollTime     = 10 * time.Millisecond
)

// lease is what the vCenter remembers of an upload.
type lease struct {
	vm    types.ManagedObjectReference
	moved atomic.Int64 // the time of the last report of its progress
}

// CreateImportSpec reads firmware and secure boot from vmw:Config, which the simulator ignores.
func (c *vCenter) CreateImportSpec(ctx *simulator.Context, req *types.CreateImportSpec) soap.HasFault {
	body := ctx.Map.Get(req.This).(*simulator.OvfManager).CreateImportSpec(ctx, req)
	found, ok := body.(*methods.CreateImportSpecBody)
	if !ok || found.Res == nil || found.Res.Returnval.ImportSpec == nil {
		return body
	}
	envelope, err := ovf.Unmarshal(strings.NewReader(req.OvfDescriptor))
	if err != nil || envelope.VirtualSystem == nil {
		return body
	}
	spec := &found.Res.Returnval.ImportSpec.(*types.VirtualMachineImportSpec).ConfigSpec
	for _, hardware := range envelope.VirtualSystem.VirtualHardware {
		for _, one := range hardware.Config {
			switch one.Key {
			case "firmware":
				spec.Firmware = one.Value
			case "bootOptions.efiSecureBootEnabled":
				if spec.BootOptions == nil {
					spec.BootOptions = new(types.VirtualMachineBootOptions)
				}
				spec.BootOptions.EfiSecureBootEnabled = types.NewBool(one.Value == "true")
			}
		}
	}
	return body
}

// ImportVApp refuses a name that the folder has and profiles that no host of the cluster has, and begins to watch the lease.
func (c *vCenter) ImportVApp(ctx *simulator.Context, req *types.ImportVApp) soap.HasFault {
	pool, ok := ctx.Map.Get(req.This).(*simulator.ResourcePool)
	if !ok {
		return &methods.ImportVAppBody{Fault_: simulator.Fault("", &types.ManagedObjectNotFound{Obj: req.This})}
	}
	if message, set := c.fault(leaseError); set {
		if message == "" {
			message = "The operation failed."
		}
		return brokenLease(ctx, message, &types.GenericVmConfigFault{Reason: message})
	}
	if _, set := c.fault(datastoreFull); set {
		return brokenLease(ctx, "Insufficient disk space on datastore.", &types.NoDiskSpace{Datastore: "datastore"})
	}
	if _, set := c.fault(leaseHangs); set {
		one := &simulator.HttpNfcLease{}
		one.State = types.HttpNfcLeaseStateInitializing
		ctx.Session.Put(one)
		return &methods.ImportVAppBody{Res: &types.ImportVAppResponse{Returnval: one.Reference()}}
	}
	if spec, ok := req.Spec.(*types.VirtualMachineImportSpec); ok {
		if other := sibling(ctx, req.Folder, spec.ConfigSpec.Name); other != nil {
			text := "The name '" + spec.ConfigSpec.Name + "' already exists."
			return &methods.ImportVAppBody{Fault_: simulator.Fault(text, &types.DuplicateName{Name: spec.ConfigSpec.Name, Object: *other})}
		}
		c.placeFiles(&spec.ConfigSpec)
		owner, _ := ctx.Map.Get(pool.Owner).(*simulator.ClusterComputeResource)
		for number, change := range spec.ConfigSpec.DeviceChange { // vGPUs may already be in the import specification
			device := change.GetVirtualDeviceConfigSpec().Device.GetVirtualDevice()
			backing, ok := device.Backing.(*types.VirtualPCIPassthroughVmiopBackingInfo)
			if ok && (owner == nil || !offers(c.hostsOf(owner), backing.Vgpu)) {
				message, fault := invalidDevice(number)
				return brokenLease(ctx, message, fault)
			}
		}
	}
	var body *methods.ImportVAppBody
	ctx.WithLock(pool, func() { body = pool.ImportVApp(ctx, req).(*methods.ImportVAppBody) })
	if body.Res == nil {
		return body
	}
	ref := body.Res.Returnval
	one := &lease{}
	if one.vm, ok = c.settle(ctx, ref); !ok {
		return body // the lease has the error
	}
	one.moved.Store(time.Now().UnixNano())
	c.leases.Store(ref.Value, one)
	go c.expire(detached(ctx), ref, one)
	return body
}

// sibling returns the object in a folder with this name, or nil.
func sibling(ctx *simulator.Context, ref *types.ManagedObjectReference, name string) *types.ManagedObjectReference {
	if ref == nil {
		return nil
	}
	folder, ok := ctx.Map.Get(*ref).(*simulator.Folder)
	if !ok {
		return nil
	}
	var found *types.ManagedObjectReference
	ctx.WithLock(folder, func() {
		for _, child := range folder.ChildEntity {
			if entity, ok := ctx.Map.Get(child).(mo.Entity); ok && nameOf(entity) == name {
				found = &child
			}
		}
	})
	return found
}

// placeFiles gives a VM whose name is taken in its datastore another directory, as a real vCenter does: its descriptor and its new disks.
func (c *vCenter) placeFiles(spec *types.VirtualMachineConfigSpec) {
	var home object.DatastorePath
	if spec.Files == nil || !home.FromString(spec.Files.VmPathName) || home.Path != "" || c.stores[home.Datastore] == "" {
		return
	}
	directory := spec.Name
	for number := 1; ; number++ {
		if _, err := os.Stat(filepath.Join(c.stores[home.Datastore], directory)); err != nil {
			break
		}
		directory = fmt.Sprintf("%s_%d", spec.Name, number)
	}
	if directory == spec.Name {
		return
	}
	home.Path = path.Join(directory, spec.Name+".vmx")
	spec.Files.VmPathName = home.String()
	for _, change := range spec.DeviceChange {
		backing, ok := change.GetVirtualDeviceConfigSpec().Device.GetVirtualDevice().Backing.(types.BaseVirtualDeviceFileBackingInfo)
		if !ok {
			continue
		}
		info, file := backing.GetVirtualDeviceFileBackingInfo(), object.DatastorePath{}
		if file.FromString(info.FileName) && path.Dir(file.Path) == spec.Name {
			file.Path = path.Join(directory, path.Base(file.Path))
			info.FileName = file.String()
		}
	}
}

// settle waits until a lease is ready or has an error, writes the SHA-1 of the ESXi hosts' certificate into its addresses, and returns its VM.
func (c *vCenter) settle(ctx *simulator.Context, ref types.ManagedObjectReference) (types.ManagedObjectReference, bool) {
	found, ok := ctx.Session.Get(ref).(*simulator.HttpNfcLease)
	vm, ready := types.ManagedObjectReference{}, false
	for deadline := time.Now().Add(creationTime); ok && time.Now().Before(deadline); time.Sleep(pollTime) {
		detached(ctx).WithLock(found, func() {
			ok = found.State == types.HttpNfcLeaseStateInitializing
			if found.State == types.HttpNfcLeaseStateReady && found.Info != nil {
				vm, ready = found.Info.Entity, true
				for number := range found.Info.DeviceUrl {
					found.Info.DeviceUrl[number].SslThumbprint = c.thumbprint()
				}
			}
		})
	}
	return vm, ready
}

// expire removes the unfinished VM of a lease whose client reports no progress any more.
func (c *vCenter) expire(ctx *simulator.Context, ref types.ManagedObjectReference, one *lease) {
	for {
		time.Sleep(20 * pollTime)
		if _, open := c.leases.Load(ref.Value); !open {
			return
		}
		if time.Since(time.Unix(0, one.moved.Load())) < c.seconds("lease-seconds", leaseTime) {
			continue
		}
		c.abort(ctx, ref)
		return
	}
}

// abort ends a lease and removes its VM, which the simulator does not.
func (c *vCenter) abort(ctx *simulator.Context, ref types.ManagedObjectReference) *methods.HttpNfcLeaseAbortBody {
	c.leases.Delete(ref.Value)
	found, ok := ctx.Session.Get(ref).(*simulator.HttpNfcLease)
	if !ok {
		return &methods.HttpNfcLeaseAbortBody{Fault_: simulator.Fault("", &types.ManagedObjectNotFound{Obj: ref})}
	}
	body := found.HttpNfcLeaseAbort(ctx, &types.HttpNfcLeaseAbort{This: ref}).(*methods.HttpNfcLeaseAbortBody)
	if found.Info != nil {
		if vm := machineOf(ctx, found.Info.Entity); vm != nil {
			ctx.WithLock(vm, func() { vm.DestroyTask(ctx, &types.Destroy_Task{This: vm.Self}) })
		}
	}
	return body
}

// unfinished returns whether a VM belongs to an import that has not been completed.
func (c *vCenter) unfinished(vm types.ManagedObjectReference) bool {
	open := false
	c.leases.Range(func(_, value any) bool {
		open = value.(*lease).vm == vm
		return !open
	})
	return open
}

// brokenLease imports nothing and returns a lease in the state error.
func brokenLease(ctx *simulator.Context, message string, fault types.BaseMethodFault) soap.HasFault {
	one := new(simulator.HttpNfcLease)
	one.State = types.HttpNfcLeaseStateError
	one.Error = &types.LocalizedMethodFault{Fault: fault, LocalizedMessage: message}
	ctx.Session.Put(one)
	return &methods.ImportVAppBody{Res: &types.ImportVAppResponse{Returnval: one.Reference()}}
}

// HttpNfcLeaseAbort ends an import and removes its VM.
func (c *vCenter) HttpNfcLeaseAbort(ctx *simulator.Context, req *types.HttpNfcLeaseAbort) soap.HasFault {
	return c.abort(ctx, req.This)
}

// HttpNfcLeaseComplete ends an import; its VM stays.
func (c *vCenter) HttpNfcLeaseComplete(ctx *simulator.Context, req *types.HttpNfcLeaseComplete) soap.HasFault {
	one, ok := ctx.Session.Get(req.This).(*simulator.HttpNfcLease)
	if !ok || one.Info == nil {
		return &methods.HttpNfcLeaseCompleteBody{Fault_: simulator.Fault("", &types.ManagedObjectNotFound{Obj: req.This})}
	}
	if vm := machineOf(ctx, one.Info.Entity); vm != nil {
		showProduct(&simulator.Context{Map: ctx.Map}, vm)
	}
	c.leases.Delete(req.This.Value)
	return one.HttpNfcLeaseComplete(ctx, req)
}

// HttpNfcLeaseProgress keeps a lease alive.
func (c *vCenter) HttpNfcLeaseProgress(ctx *simulator.Context, req *types.HttpNfcLeaseProgress) soap.HasFault {
	one, ok := ctx.Session.Get(req.This).(*simulator.HttpNfcLease)
	if !ok {
		return &methods.HttpNfcLeaseProgressBody{Fault_: simulator.Fault("", &types.ManagedObjectNotFound{Obj: req.This})}
	}
	if found, ok := c.leases.Load(req.This.Value); ok {
		found.(*lease).moved.Store(time.Now().UnixNano())
	}
	return one.HttpNfcLeaseProgress(ctx, req)
}
