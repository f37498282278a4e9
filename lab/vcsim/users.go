// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// user is an account. Without permissions it is an administrator.
type user struct {
	Password string `json:"password"`
	// Permissions contains the privileges by the inventory path of an object, such as / or /DC1/vm/openshift. They also apply to all
	// objects below it, unless a permission on an object in between replaces them.
	Permissions map[string][]string `json:"permissions"`
}

func (c *vCenter) validLogin(req *types.Login) bool {
	one, known := c.users.read()[req.UserName]
	return known && one.Password == req.Password
}

// Login refuses a wrong password with the message of a real vCenter. An expired session is no session.
func (c *vCenter) Login(ctx *simulator.Context, req *types.Login) soap.HasFault {
	if !c.validLogin(req) {
		text := "Cannot complete login due to an incorrect user name or password."
		return &methods.LoginBody{Fault_: simulator.Fault(text, &types.InvalidLogin{})}
	}
	ctx.Session = nil
	return ctx.Map.SessionManager().Login(ctx, req)
}

// granted returns whether a user has a privilege on an object; objects that are not in the inventory count as its root.
func (c *vCenter) granted(ctx *simulator.Context, name string, object types.ManagedObjectReference, privilege string) bool {
	return slices.Contains(c.privilegesOn(ctx, name, object), privilege) || c.isAdministrator(name)
}

func (c *vCenter) isAdministrator(name string) bool {
	one, known := c.users.read()[name]
	return known && one.Permissions == nil || name == ""
}

// privilegesOn returns the privileges of a limited user on an object.
func (c *vCenter) privilegesOn(ctx *simulator.Context, name string, object types.ManagedObjectReference) []string {
	permissions := c.users.read()[name].Permissions
	for _, path := range ancestors(ctx, object) {
		if found, set := permissions[path]; set {
			return found
		}
	}
	return nil
}

// ancestors returns the inventory paths of an object and of the objects above it, in this order.
func ancestors(ctx *simulator.Context, object types.ManagedObjectReference) []string {
	var names []string
	for ref := &object; ref != nil; {
		entity, ok := ctx.Map.Get(*ref).(mo.Entity)
		if !ok {
			break
		}
		names = append(names, nameOf(entity))
		ref = entity.Entity().Parent
	}
	paths := []string{"/"}
	if len(names) == 0 {
		return paths
	}
	path := ""
	for _, name := range slices.Backward(names[:len(names)-1]) { // without the root
		path += "/" + name
		paths = append(paths, path)
	}
	slices.Reverse(paths)
	return paths
}

// nameOf returns the name of an object; the simulator keeps that of a network in another field.
func nameOf(entity mo.Entity) string {
	if network, ok := entity.(*mo.Network); ok {
		return network.Name
	}
	return entity.Entity().Name
}

// pathOf returns the inventory path of an object.
func pathOf(ctx *simulator.Context, object types.ManagedObjectReference) string {
	return ancestors(ctx, object)[0]
}

// The privileges that methods need on their object, from the vSphere API reference ("Required Privileges").
var privileges = map[string][]string{
	"ImportVApp":                {"VApp.Import", "Resource.AssignVMToPool"}, // on the pool; importRequirements adds those on other objects
	"CreateImportSpec":          {"VApp.Import"},
	"MarkAsTemplate":            {"VirtualMachine.Provisioning.MarkAsTemplate"},
	"MarkAsVirtualMachine":      {"VirtualMachine.Provisioning.MarkAsVM"},
	"CloneVM_Task":              {"VirtualMachine.Provisioning.DeployTemplate"},
	"UpgradeVM_Task":            {"VirtualMachine.Config.UpgradeVirtualHardware"},
	"CreateSnapshot_Task":       {"VirtualMachine.State.CreateSnapshot"},
	"RemoveAllSnapshots_Task":   {"VirtualMachine.State.RemoveSnapshot"},
	"PowerOnVM_Task":            {"VirtualMachine.Interact.PowerOn"},
	"PowerOffVM_Task":           {"VirtualMachine.Interact.PowerOff"},
	"Destroy_Task":              {"VirtualMachine.Inventory.Delete"},
	"Rename_Task":               {"VirtualMachine.Config.Rename"},
	"MoveIntoFolder_Task":       {"VirtualMachine.Inventory.Move"},
	"UpdateGraphicsConfig":      {"Host.Config.Settings"},
	"FetchSoftwarePackages":     {"Host.Config.Image"},
	"RestartService":            {"Host.Config.NetService"},
	"RebootHost_Task":           {"Host.Config.Maintenance"},
	"EnterMaintenanceMode_Task": {"Host.Config.Maintenance"},
	"ExitMaintenanceMode_Task":  {"Host.Config.Maintenance"},
	"UpdateOptions":             {"Global.Settings"},
	"CreateFolder":              {"Folder.Create"},
}

// reconfigurePrivileges returns the privileges that a change of a VM needs.
func reconfigurePrivileges(spec types.VirtualMachineConfigSpec) []string {
	disks := 0
	for _, change := range spec.DeviceChange {
		if isNewDisk(change.GetVirtualDeviceConfigSpec()) {
			disks++
		}
	}
	var found []string
	for privilege, needed := range map[string]bool{
		"VirtualMachine.Config.Rename":          spec.Name != "",
		"VirtualMachine.Config.Annotation":      spec.Annotation != "",
		"VirtualMachine.Config.AddNewDisk":      disks > 0,
		"VirtualMachine.Config.AddRemoveDevice": len(spec.DeviceChange) > disks,
		"VirtualMachine.Config.AdvancedConfig":  len(spec.ExtraConfig) > 0,
		"VirtualMachine.Config.Resource":        spec.MemoryReservationLockedToMax != nil || spec.MemoryAllocation != nil,
		"VirtualMachine.Config.Settings":        spec.Firmware != "" || spec.BootOptions != nil,
		"VirtualMachine.Config.CPUCount":        spec.NumCPUs > 0,
		"VirtualMachine.Config.Memory":          spec.MemoryMB > 0,
	} {
		if needed {
			found = append(found, privilege)
		}
	}
	slices.Sort(found)
	return found
}

func isNewDisk(change *types.VirtualDeviceConfigSpec) bool {
	_, disk := change.Device.(*types.VirtualDisk)
	return disk && change.Operation == types.VirtualDeviceConfigSpecOperationAdd && change.FileOperation == types.VirtualDeviceConfigSpecFileOperationCreate
}

// requirement is what a call needs on an object.
type requirement struct {
	object     types.ManagedObjectReference
	privileges []string
}

// importRequirements returns what an import needs on the pool, and on the folder, the datastores and the networks of its VM. The name, the CPUs and the
// memory of a new VM need no privilege of their own.
func (c *vCenter) importRequirements(ctx *simulator.Context, req *types.ImportVApp) []requirement {
	found := []requirement{{req.This, privileges["ImportVApp"]}}
	imported, ok := req.Spec.(*types.VirtualMachineImportSpec)
	if !ok {
		return found
	}
	spec := imported.ConfigSpec
	above := ancestors(ctx, req.This)
	datacenter := above[max(len(above)-2, 0)]
	add := func(ref *types.ManagedObjectReference, wanted ...string) {
		if ref != nil {
			found = append(found, requirement{*ref, wanted})
		}
	}
	folder := req.Folder
	if folder == nil {
		folder = c.find(ctx, "Folder", datacenter+"/vm")
	}
	plain := spec
	plain.Name, plain.Annotation, plain.NumCPUs, plain.MemoryMB = "", "", 0, 0
	add(folder, append([]string{"VApp.Import", "VirtualMachine.Inventory.Create"}, reconfigurePrivileges(plain)...)...)
	if spec.Files != nil {
		c.addDatastore(ctx, datacenter, spec.Files.VmPathName, add)
	}
	for _, change := range spec.DeviceChange {
		switch backing := change.GetVirtualDeviceConfigSpec().Device.GetVirtualDevice().Backing.(type) {
		case types.BaseVirtualDeviceFileBackingInfo:
			c.addDatastore(ctx, datacenter, backing.GetVirtualDeviceFileBackingInfo().FileName, add)
		case *types.VirtualEthernetCardNetworkBackingInfo:
			add(c.find(ctx, "Network", datacenter+"/network/"+backing.DeviceName), "Network.Assign")
		}
	}
	return found
}

func (c *vCenter) addDatastore(ctx *simulator.Context, datacenter, file string, add func(*types.ManagedObjectReference, ...string)) {
	var path object.DatastorePath
	if path.FromString(file) {
		add(c.find(ctx, "Datastore", datacenter+"/datastore/"+path.Datastore), "Datastore.AllocateSpace")
	}
}

// requirements returns what a call needs.
func (c *vCenter) requirements(ctx *simulator.Context, name string, method *simulator.Method) []requirement {
	on, wanted := c.entityOf(ctx, method.This), privileges[name]
	switch req := method.Body.(type) {
	case *types.ImportVApp:
		return c.importRequirements(ctx, req)
	case *types.ReconfigVM_Task:
		wanted = reconfigurePrivileges(req.Spec)
	case *types.CreateImportSpec:
		on = req.ResourcePool
	case *types.PowerOnMultiVM_Task:
		if len(req.Vm) > 0 {
			on, wanted = req.Vm[0], privileges["PowerOnVM_Task"]
		}
	case *types.MoveIntoFolder_Task:
		if len(req.List) > 0 {
			on = req.List[0]
		}
	}
	return []requirement{{on, wanted}}
}

// deny returns NoPermission for a call that the user may not make.
func (c *vCenter) deny(ctx *simulator.Context, name string, method *simulator.Method) types.BaseMethodFault {
	if ctx.Session == nil || c.isAdministrator(ctx.Session.UserName) {
		return nil
	}
	for _, needed := range c.requirements(ctx, name, method) {
		for _, one := range needed.privileges {
			if !c.granted(ctx, ctx.Session.UserName, needed.object, one) {
				return &types.NoPermission{Object: &needed.object, PrivilegeId: one,
					MissingPrivileges: []types.NoPermissionEntityPrivileges{{Entity: needed.object, PrivilegeIds: []string{one}}}}
			}
		}
	}
	return nil
}

// entityOf returns the host of one of its managers, otherwise the object itself.
func (c *vCenter) entityOf(ctx *simulator.Context, ref types.ManagedObjectReference) types.ManagedObjectReference {
	switch manager := ctx.Map.Get(ref).(type) {
	case *graphicsManager:
		return manager.host.ref
	case *imageManager:
		return manager.host.ref
	case *serviceSystem:
		return manager.host.ref
	}
	return ref
}

func (c *vCenter) availability(ctx *simulator.Context, name string, entities []types.ManagedObjectReference, wanted []string) []types.EntityPrivilege {
	var found []types.EntityPrivilege
	for _, entity := range entities {
		one := types.EntityPrivilege{Entity: entity}
		for _, id := range wanted {
			one.PrivAvailability = append(one.PrivAvailability, types.PrivilegeAvailability{PrivId: id, IsGranted: c.granted(ctx, name, entity, id)})
		}
		found = append(found, one)
	}
	return found
}

// HasPrivilegeOnEntities answers for the user of the session.
func (c *vCenter) HasPrivilegeOnEntities(ctx *simulator.Context, req *types.HasPrivilegeOnEntities) soap.HasFault {
	found := c.availability(ctx, ctx.Session.UserName, req.Entity, req.PrivId)
	return &methods.HasPrivilegeOnEntitiesBody{Res: &types.HasPrivilegeOnEntitiesResponse{Returnval: found}}
}

// HasUserPrivilegeOnEntities answers for any user.
func (c *vCenter) HasUserPrivilegeOnEntities(ctx *simulator.Context, req *types.HasUserPrivilegeOnEntities) soap.HasFault {
	found := c.availability(ctx, req.UserName, req.Entities, req.PrivId)
	return &methods.HasUserPrivilegeOnEntitiesBody{Res: &types.HasUserPrivilegeOnEntitiesResponse{Returnval: found}}
}

// FetchUserPrivilegeOnEntities returns all privileges of a user on each object.
func (c *vCenter) FetchUserPrivilegeOnEntities(ctx *simulator.Context, req *types.FetchUserPrivilegeOnEntities) soap.HasFault {
	manager := ctx.Map.Get(req.This).(*simulator.AuthorizationManager)
	body := manager.FetchUserPrivilegeOnEntities(req).(*methods.FetchUserPrivilegeOnEntitiesBody)
	if !c.isAdministrator(req.UserName) {
		for number := range body.Res.Returnval {
			one := &body.Res.Returnval[number]
			one.Privileges = c.privilegesOn(ctx, req.UserName, one.Entity)
		}
	}
	return body
}
