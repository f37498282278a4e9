// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"bytes"
	"encoding/json"
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
	Name      string `json:"name"`
	Folder    string `json:"folder"`
	Pool      string `json:"pool"`
	Host      string `json:"host"`
	Datastore string `json:"datastore"`
	Template  bool   `json:"template"`
	Running   bool   `json:"running"`
	// Config is a VirtualMachineConfigInfo, with the names of the types that a plain decoder does not know.
	Config json.RawMessage `json:"config"`
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
	found := []savedMachine{}
	for _, entity := range c.registry.All("VirtualMachine") {
		vm := machineOf(ctx, entity.Reference())
		if vm == nil || c.unfinished(vm.Self) {
			continue
		}
		ctx.WithLock(vm, func() {
			one, err := describe(ctx, vm)
			if err != nil {
				log.Println("vcsim: cannot save", vm.Name, err)
			} else if one != nil {
				found = append(found, *one)
			}
		})
	}
	slices.SortFunc(found, func(a, b savedMachine) int {
		return strings.Compare(a.Folder+"/"+a.Name, b.Folder+"/"+b.Name)
	})
	c.state.mutex.Lock()
	defer c.state.mutex.Unlock()
	content, err := json.Marshal(found)
	if err == nil && bytes.Equal(content, c.state.written) {
		return
	}
	fresh := c.state.path + ".new"
	if err == nil {
		err = os.WriteFile(fresh, content, 0o600)
	}
	if err == nil {
		err = os.Rename(fresh, c.state.path)
	}
	if err != nil {
		log.Println("vcsim: cannot save the virtual machines:", err)
		return
	}
	c.state.written = content
}

// describe returns what is saved of a VM; nothing if it is not in a folder.
func describe(ctx *simulator.Context, vm *simulator.VirtualMachine) (*savedMachine, error) {
	if vm.Parent == nil || vm.Parent.Type != "Folder" || vm.Runtime.Host == nil || len(vm.Datastore) == 0 {
		return nil, nil
	}
	config := new(bytes.Buffer)
	if err := types.NewJSONEncoder(config).Encode(*vm.Config); err != nil {
		return nil, err
	}
	one := &savedMachine{
		Name: vm.Name, Folder: pathOf(ctx, *vm.Parent), Host: pathOf(ctx, *vm.Runtime.Host), Datastore: pathOf(ctx, vm.Datastore[0]),
		Template: vm.Config.Template, Running: vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn, Config: config.Bytes(),
	}
	if vm.ResourcePool != nil {
		one.Pool = pathOf(ctx, *vm.ResourcePool)
	}
	return one, nil
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
		err = json.Unmarshal(content, &found)
	}
	if err != nil {
		return err
	}
	for _, one := range found {
		if err := c.restoreMachine(detached(ctx), one); err != nil {
			return fmt.Errorf("%s/%s: %w", one.Folder, one.Name, err)
		}
	}
	for _, host := range c.hosts {
		c.publish(detached(ctx), host)
	}
	return nil
}

func (c *vCenter) restoreMachine(ctx *simulator.Context, saved savedMachine) error {
	var config types.VirtualMachineConfigInfo
	if err := types.NewJSONDecoder(bytes.NewReader(saved.Config)).Decode(&config); err != nil {
		return err
	}
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
		This: folder.Self, Config: creation(&config, path.Base(saved.Datastore)), Pool: *pool, Host: host}))
	if err != nil {
		return err
	}
	vm := machineOf(ctx, created)
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
func creation(config *types.VirtualMachineConfigInfo, store string) types.VirtualMachineConfigSpec {
	spec := types.VirtualMachineConfigSpec{
		Name: config.Name, Version: config.Version, GuestId: config.GuestId, Uuid: config.Uuid, InstanceUuid: config.InstanceUuid,
		Firmware: config.Firmware, Files: &types.VirtualMachineFileInfo{VmPathName: "[" + store + "]"},
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
	backings := func(devices []types.BaseVirtualDevice) []*types.VirtualDiskFlatVer2BackingInfo {
		var found []*types.VirtualDiskFlatVer2BackingInfo
		for _, one := range devices {
			if backing, ok := one.GetVirtualDevice().Backing.(*types.VirtualDiskFlatVer2BackingInfo); ok {
				found = append(found, backing)
			}
		}
		return found
	}
	files := backings(created)
	for number, one := range backings(saved) {
		if number < len(files) {
			one.FileName, one.Datastore = files[number].FileName, files[number].Datastore
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
