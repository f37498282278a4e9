// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/simulator/esx"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

const (
	savePeriod = 200 * time.Millisecond
	// Tasks that a call has started change VMs until then.
	changesFor = 3 * time.Second
)

// stateFile keeps the VMs and templates: the simulator itself keeps nothing.
type stateFile struct {
	path    string
	changed atomic.Int64 // the time of the last call that changes something
	mutex   sync.Mutex
	written []byte
}

// savedMachine is a VM in the file.
type savedMachine struct {
	Folder    string                         `json:"folder"`
	Pool      string                         `json:"pool"`
	Host      string                         `json:"host"`
	Datastore string                         `json:"datastore"`
	Template  bool                           `json:"template"`
	Running   bool                           `json:"running"`
	Config    types.VirtualMachineConfigInfo `json:"config"`
}

// touch notes that a call changes something.
func (s *stateFile) touch() { s.changed.Store(time.Now().UnixNano()) }

// watch saves the VMs after each change.
func (c *vCenter) watch() {
	for {
		time.Sleep(savePeriod)
		if time.Since(time.Unix(0, c.state.changed.Load())) < changesFor {
			c.save()
		}
	}
}

// save writes all VMs, except those of unfinished imports.
func (c *vCenter) save() {
	if c.state.path == "" {
		return
	}
	ctx := &simulator.Context{Map: c.registry}
	var found []savedMachine
	for _, entity := range c.registry.All("VirtualMachine") {
		vm := machineOf(ctx, entity.Reference())
		if vm == nil || c.unfinished(vm.Self) {
			continue
		}
		ctx.WithLock(vm, func() {
			if one := describe(ctx, vm); one != nil {
				found = append(found, *one)
			}
		})
	}
	slices.SortFunc(found, func(a, b savedMachine) int {
		return strings.Compare(a.Folder+"/"+a.Config.Name, b.Folder+"/"+b.Config.Name)
	})
	c.state.mutex.Lock()
	defer c.state.mutex.Unlock()
	content := new(bytes.Buffer)
	if err := types.NewJSONEncoder(content).Encode(found); err != nil {
		log.Println("vcsim: cannot save the virtual machines:", err)
		return
	}
	if bytes.Equal(content.Bytes(), c.state.written) {
		return
	}
	fresh := c.state.path + ".new"
	err := os.WriteFile(fresh, content.Bytes(), 0o600)
	if err == nil {
		err = os.Rename(fresh, c.state.path)
	}
	if err != nil {
		log.Println("vcsim: cannot save the virtual machines:", err)
		return
	}
	c.state.written = content.Bytes()
}

func describe(ctx *simulator.Context, vm *simulator.VirtualMachine) *savedMachine {
	if vm.Parent == nil || vm.Runtime.Host == nil || len(vm.Datastore) == 0 {
		return nil
	}
	one := &savedMachine{
		Folder: pathOf(ctx, *vm.Parent), Host: pathOf(ctx, *vm.Runtime.Host), Datastore: pathOf(ctx, vm.Datastore[0]),
		Template: vm.Config.Template, Running: vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn, Config: *vm.Config,
	}
	if vm.ResourcePool != nil {
		one.Pool = pathOf(ctx, *vm.ResourcePool)
	}
	return one
}

// restore creates the VMs in the file, with their identifiers, devices and options.
func (c *vCenter) restore(ctx *simulator.Context) error {
	if c.state.path == "" {
		return nil
	}
	var found []savedMachine
	content, err := os.ReadFile(c.state.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = types.NewJSONDecoder(bytes.NewReader(content)).Decode(&found)
	}
	if err != nil {
		return err
	}
	for _, one := range found {
		if err := c.restoreMachine(detached(ctx), one); err != nil {
			return fmt.Errorf("%s/%s: %w", one.Folder, one.Config.Name, err)
		}
	}
	for _, host := range c.hosts {
		c.publish(detached(ctx), host)
	}
	return nil
}

func (c *vCenter) restoreMachine(ctx *simulator.Context, saved savedMachine) error {
	folder, err := c.ensureFolder(ctx, saved.Folder)
	if err != nil {
		return err
	}
	host, pool := c.find(ctx, "HostSystem", saved.Host), c.find(ctx, "ResourcePool", saved.Pool)
	if host == nil {
		return fmt.Errorf("the host %s does not exist", saved.Host)
	}
	if pool == nil { // a template has none
		system := ctx.Map.Get(*host).(*simulator.HostSystem)
		pool = ctx.Map.Get(*system.Parent).(*simulator.ClusterComputeResource).ResourcePool
	}
	created, err := waitCreated(ctx, folder.CreateVMTask(ctx, &types.CreateVM_Task{
		This: folder.Self, Config: creation(saved), Pool: *pool, Host: host}))
	if err != nil {
		return err
	}
	vm := machineOf(ctx, created)
	config := saved.Config
	config.Files, config.DatastoreUrl, config.Template = vm.Config.Files, vm.Config.DatastoreUrl, false
	adoptFiles(config.Hardware.Device, vm.Config.Hardware.Device)
	vm.Config = &config
	vm.Summary.Config.InstanceUuid, vm.Summary.Config.Uuid = config.InstanceUuid, config.Uuid
	vm.Summary.Config.MemorySizeMB, vm.Summary.Config.NumCpu = config.Hardware.MemoryMB, config.Hardware.NumCPU
	vm.Summary.Config.Annotation, vm.Summary.Config.HwVersion = config.Annotation, config.Version
	showProduct(ctx, vm)
	switch {
	case saved.Template:
		ctx.WithLock(vm, func() { vm.MarkAsTemplate(&types.MarkAsTemplate{This: vm.Self}) })
	case saved.Running:
		var body *methods.PowerOnVM_TaskBody
		ctx.WithLock(vm, func() {
			body = vm.PowerOnVMTask(ctx, &types.PowerOnVM_Task{This: vm.Self}).(*methods.PowerOnVM_TaskBody)
		})
		if body.Fault_ != nil {
			return errors.New(body.Fault_.String)
		}
		_, _ = waitFor(ctx, body.Res.Returnval)
	}
	return nil
}

func waitCreated(ctx *simulator.Context, body soap.HasFault) (types.ManagedObjectReference, error) {
	result, fault := waitFor(ctx, body.(*methods.CreateVM_TaskBody).Res.Returnval)
	if fault != nil {
		return types.ManagedObjectReference{}, fmt.Errorf("%T", fault)
	}
	return result.(types.ManagedObjectReference), nil
}

// creation returns a specification with the devices that a new VM does not have anyway.
func creation(saved savedMachine) types.VirtualMachineConfigSpec {
	config := saved.Config
	spec := types.VirtualMachineConfigSpec{
		Name: config.Name, Version: config.Version, GuestId: config.GuestId, Uuid: config.Uuid, InstanceUuid: config.InstanceUuid,
		Firmware: config.Firmware, Files: &types.VirtualMachineFileInfo{VmPathName: "[" + path.Base(saved.Datastore) + "]"},
		MemoryMB: int64(config.Hardware.MemoryMB), NumCPUs: config.Hardware.NumCPU,
	}
	usual := map[int32]bool{}
	for _, one := range esx.VirtualDevice {
		usual[one.GetVirtualDevice().Key] = true
	}
	for _, one := range config.Hardware.Device {
		if usual[one.GetVirtualDevice().Key] {
			continue
		}
		change := &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: one}
		if disk, ok := one.(*types.VirtualDisk); ok {
			empty := *disk
			backing, flat := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
			if !flat {
				continue
			}
			file := *backing
			file.FileName, file.Datastore, file.Parent = "", nil, nil
			empty.Backing = &file
			change.Device, change.FileOperation = &empty, types.VirtualDeviceConfigSpecFileOperationCreate
		}
		spec.DeviceChange = append(spec.DeviceChange, change)
	}
	return spec
}

// adoptFiles gives the saved disks the files of the created ones.
func adoptFiles(saved, created []types.BaseVirtualDevice) {
	var files []types.BaseVirtualDeviceBackingInfo
	for _, one := range created {
		if disk, ok := one.(*types.VirtualDisk); ok {
			files = append(files, disk.Backing)
		}
	}
	for _, one := range saved {
		if disk, ok := one.(*types.VirtualDisk); ok && len(files) > 0 {
			disk.Backing, files = files[0], files[1:]
		}
	}
}

// find returns the object of a type with an inventory path, or nil.
func (c *vCenter) find(ctx *simulator.Context, kind, path string) *types.ManagedObjectReference {
	for _, one := range c.registry.All(kind) {
		if ref := one.Reference(); pathOf(ctx, ref) == path {
			return &ref
		}
	}
	return nil
}

// ensureFolder returns a folder, which is created with those above it if it does not exist.
func (c *vCenter) ensureFolder(ctx *simulator.Context, wanted string) (*simulator.Folder, error) {
	if ref := c.find(ctx, "Folder", wanted); ref != nil {
		return ctx.Map.Get(*ref).(*simulator.Folder), nil
	}
	if wanted == "/" || wanted == "." {
		return nil, errors.New("the datacenter does not exist")
	}
	parent, err := c.ensureFolder(ctx, path.Dir(wanted))
	if err != nil {
		return nil, err
	}
	body := parent.CreateFolder(ctx, &types.CreateFolder{This: parent.Self, Name: path.Base(wanted)}).(*methods.CreateFolderBody)
	if body.Fault_ != nil {
		return nil, errors.New(body.Fault_.String)
	}
	return ctx.Map.Get(body.Res.Returnval).(*simulator.Folder), nil
}
