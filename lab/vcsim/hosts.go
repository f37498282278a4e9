// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// graphicsManager is a host's HostGraphicsManager, which the simulator does not have.
type graphicsManager struct {
	mo.HostGraphicsManager
	host   *gpuHost
	center *vCenter
}

// imageManager is a host's HostImageConfigManager: the installed packages.
type imageManager struct {
	mo.HostImageConfigManager
	host   *gpuHost
	center *vCenter
}

// serviceSystem restarts Xorg, which activates the configured graphics type.
type serviceSystem struct {
	mo.HostServiceSystem
	host   *gpuHost
	center *vCenter
}

// addHost gives a host its GPUs and the managers that the simulator does not have.
func (c *vCenter) addHost(registry *simulator.Registry, ref types.ManagedObjectReference, plan host) {
	system := registry.Get(ref).(*simulator.HostSystem)
	one := &gpuHost{ref: ref, vibs: plan.VIBs}
	images := &imageManager{host: one, center: c}
	images.Self = types.ManagedObjectReference{Type: "HostImageConfigManager", Value: "images-" + ref.Value}
	registry.Put(images)
	system.ConfigManager.ImageConfigManager = &images.Self
	services := &serviceSystem{host: one, center: c}
	services.Self = types.ManagedObjectReference{Type: "HostServiceSystem", Value: "services-" + ref.Value}
	services.ServiceInfo.Service = []types.HostService{{Key: "xorg", Label: "X.Org Server", Policy: "on", Running: len(plan.GPUs) > 0}}
	registry.Put(services)
	system.ConfigManager.ServiceSystem = &services.Self
	graphics := plan.Graphics
	if graphics == "" {
		graphics = shared
	}
	one.config = types.HostGraphicsConfig{HostDefaultGraphicsType: graphics, SharedPassthruAssignmentPolicy: "performance"}
	for number := range plan.GPUs {
		card := plan.GPUs[number]
		card.active = graphics
		if card.Mode == "" {
			card.Mode = sameSize
		}
		if card.PciID == "" {
			card.PciID = fmt.Sprintf("0000:%02x:00.0", 0x3b+number*0x10)
		}
		one.gpus = append(one.gpus, &card)
		one.config.DeviceType = append(one.config.DeviceType, types.HostGraphicsConfigDeviceType{DeviceId: card.PciID, GraphicsType: graphics, VgpuMode: c.shown(card.Mode)})
	}
	one.manager = &graphicsManager{host: one, center: c}
	one.manager.Self = types.ManagedObjectReference{Type: "HostGraphicsManager", Value: "graphics-" + ref.Value}
	registry.Put(one.manager)
	system.ConfigManager.GraphicsManager = &one.manager.Self
	c.hosts[ref.Value] = one
	c.publish(&simulator.Context{Map: registry}, one)
}

// shown returns the mode of a GPU as the API shows it: a vCenter older than 8.0.3 has no modes.
func (c *vCenter) shown(mode string) string {
	if slices.Compare(c.version, []int{8, 0, 3}) < 0 {
		return ""
	}
	return mode
}

// activate makes the configured graphics types the active ones, as restarting Xorg does; the reboot of the host also makes the modes active.
func (c *vCenter) activate(ctx *simulator.Context, host *gpuHost, rebooted bool) {
	host.Lock()
	for _, card := range host.gpus {
		card.active = host.config.HostDefaultGraphicsType
		for _, one := range host.config.DeviceType {
			if one.DeviceId == card.PciID {
				card.active = one.GraphicsType
				if one.VgpuMode != "" && rebooted {
					card.Mode = one.VgpuMode
				}
			}
		}
	}
	host.Unlock()
	c.publish(ctx, host)
}

// UpdateGraphicsConfig replaces the whole configuration, which takes effect with a restart.
func (m *graphicsManager) UpdateGraphicsConfig(ctx *simulator.Context, req *types.UpdateGraphicsConfig) soap.HasFault {
	body := new(methods.UpdateGraphicsConfigBody)
	wrong := func(name string) soap.HasFault {
		body.Fault_ = simulator.Fault("A specified parameter was not correct: "+name, &types.InvalidArgument{InvalidProperty: name})
		return body
	}
	m.host.Lock()
	defer m.host.Unlock()
	graphics := []string{shared, sharedDirect}
	if !slices.Contains(graphics, req.Config.HostDefaultGraphicsType) {
		return wrong("config.hostDefaultGraphicsType")
	}
	if !slices.Contains([]string{"performance", "consolidation"}, req.Config.SharedPassthruAssignmentPolicy) {
		return wrong("config.sharedPassthruAssignmentPolicy")
	}
	for _, one := range req.Config.DeviceType {
		number := slices.IndexFunc(m.host.gpus, func(card *gpu) bool { return card.PciID == one.DeviceId })
		if number < 0 || !slices.Contains(graphics, one.GraphicsType) || !m.center.settable(m.host.gpus[number], one.VgpuMode) {
			return wrong("config.deviceType")
		}
	}
	if used, _ := m.center.running(ctx, m.host); len(used) > 0 {
		body.Fault_ = simulator.Fault("The operation is not allowed while virtual machines use the GPUs.", &types.ResourceInUse{Type: "HostSystem", Name: m.host.ref.Value})
		return body
	}
	for number := range req.Config.DeviceType { // without a mode, it remains unchanged
		one := &req.Config.DeviceType[number]
		for _, old := range m.host.config.DeviceType {
			if old.DeviceId == one.DeviceId && one.VgpuMode == "" {
				one.VgpuMode = old.VgpuMode
			}
		}
	}
	m.host.config = req.Config
	m.center.publish(ctx, m.host)
	body.Res = new(types.UpdateGraphicsConfigResponse)
	return body
}

// settable returns whether a mode can be configured for a GPU. vSphere's documentation lists only the time-sliced modes (HostGraphicsConfigVgpuMode); MIG is a
// documented state (HostGraphicsInfoVgpuMode), and the setting mig-by-api determines whether it can also be configured.
func (c *vCenter) settable(card *gpu, mode string) bool {
	if mode == mig {
		return card.migCapable() && (card.Mode == mig || c.settings.read().Settings[prefix+"mig-by-api"] != "false")
	}
	return slices.Contains([]string{"", sameSize, mixedSize}, mode)
}

// RefreshGraphicsManager activates nothing.
func (m *graphicsManager) RefreshGraphicsManager(ctx *simulator.Context, _ *types.RefreshGraphicsManager) soap.HasFault {
	m.center.publish(ctx, m.host)
	return &methods.RefreshGraphicsManagerBody{Res: new(types.RefreshGraphicsManagerResponse)}
}

// IsSharedGraphicsActive returns whether the host has a GPU.
func (m *graphicsManager) IsSharedGraphicsActive(*types.IsSharedGraphicsActive) soap.HasFault {
	return &methods.IsSharedGraphicsActiveBody{Res: &types.IsSharedGraphicsActiveResponse{Returnval: len(m.host.gpus) > 0}}
}

// RetrieveVgpuDeviceInfo returns the GPU models.
func (m *graphicsManager) RetrieveVgpuDeviceInfo(*types.RetrieveVgpuDeviceInfo) soap.HasFault {
	return &methods.RetrieveVgpuDeviceInfoBody{Res: &types.RetrieveVgpuDeviceInfoResponse{Returnval: m.host.devices()}}
}

// RetrieveVgpuProfileInfo returns the profiles.
func (m *graphicsManager) RetrieveVgpuProfileInfo(*types.RetrieveVgpuProfileInfo) soap.HasFault {
	return &methods.RetrieveVgpuProfileInfoBody{Res: &types.RetrieveVgpuProfileInfoResponse{Returnval: m.host.profiles()}}
}

// FetchSoftwarePackages returns the installed packages.
func (m *imageManager) FetchSoftwarePackages(*types.FetchSoftwarePackages) soap.HasFault {
	installed := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	packages := []types.SoftwarePackage{{Name: "esx-base", Version: "8.0.3-0.0.24022510", Type: "bootbank", Vendor: "VMware", AcceptanceLevel: "certified"}}
	for _, one := range m.host.vibs {
		packages = append(packages, types.SoftwarePackage{Name: one.Name, Version: one.Version, Type: "bootbank", Vendor: one.Vendor, AcceptanceLevel: "vmware_accepted"})
	}
	for number := range packages {
		packages[number].CreationDate = &installed
	}
	return &methods.FetchSoftwarePackagesBody{Res: &types.FetchSoftwarePackagesResponse{Returnval: packages}}
}

// RestartService activates the graphics configuration if the service is Xorg.
func (s *serviceSystem) RestartService(ctx *simulator.Context, req *types.RestartService) soap.HasFault {
	if req.Id == "xorg" {
		s.center.activate(ctx, s.host, false)
	}
	return &methods.RestartServiceBody{Res: new(types.RestartServiceResponse)}
}

// RebootHostTask disconnects the host for a while, and activates its graphics configuration.
func (c *vCenter) RebootHostTask(ctx *simulator.Context, req *types.RebootHost_Task) soap.HasFault {
	if hung := c.hung(ctx, req.This, "RebootHost_Task"); hung != nil {
		return &methods.RebootHost_TaskBody{Res: &types.RebootHost_TaskResponse{Returnval: *hung}}
	}
	body := new(methods.RebootHost_TaskBody)
	system := ctx.Map.Get(req.This).(*simulator.HostSystem)
	if !req.Force && !system.Runtime.InMaintenanceMode {
		body.Fault_ = simulator.Fault("The operation is not allowed in the current state.", &types.InvalidState{})
		return body
	}
	own := detached(ctx)
	setConnection(own, system, types.HostSystemConnectionStateNotResponding)
	time.AfterFunc(c.seconds("reboot-seconds", time.Second), func() {
		if host := c.hosts[req.This.Value]; host != nil {
			c.activate(own, host, true)
		}
		now := time.Now()
		ctx.Map.AtomicUpdate(own, system, []types.PropertyChange{{Name: "runtime.bootTime", Val: &now}})
		setConnection(own, system, types.HostSystemConnectionStateConnected)
	})
	one := simulator.CreateTask(system, "reboot", func(*simulator.Task) (types.AnyType, types.BaseMethodFault) { return nil, nil })
	body.Res = &types.RebootHost_TaskResponse{Returnval: one.Run(own)}
	return body
}

// QueryConfigTarget adds the vGPU lists of the hosts.
func (c *vCenter) QueryConfigTarget(ctx *simulator.Context, req *types.QueryConfigTarget) soap.HasFault {
	body := ctx.Map.Get(req.This).(*simulator.EnvironmentBrowser).QueryConfigTarget(ctx, req).(*methods.QueryConfigTargetBody)
	target := *body.Res.Returnval
	for value, host := range c.hosts {
		system := ctx.Map.Get(host.ref).(*simulator.HostSystem)
		if req.Host != nil && req.Host.Value != value {
			continue
		}
		owner, ok := ctx.Map.Get(*system.Parent).(*simulator.ClusterComputeResource)
		if !ok || *owner.EnvironmentBrowser != req.This {
			continue
		}
		for _, one := range host.profiles() {
			if !slices.ContainsFunc(target.VgpuProfileInfo, func(p types.VirtualMachineVgpuProfileInfo) bool { return p.ProfileName == one.ProfileName }) {
				target.VgpuProfileInfo = append(target.VgpuProfileInfo, one)
				pass := types.VirtualMachinePciSharedGpuPassthroughInfo{Vgpu: one.ProfileName}
				pass.Name = one.ProfileName
				target.SharedGpuPassthroughTypes = append(target.SharedGpuPassthroughTypes, pass)
			}
		}
		for _, one := range host.devices() {
			if !slices.ContainsFunc(target.VgpuDeviceInfo, func(d types.VirtualMachineVgpuDeviceInfo) bool { return d.DeviceName == one.DeviceName }) {
				target.VgpuDeviceInfo = append(target.VgpuDeviceInfo, one)
			}
		}
	}
	body.Res.Returnval = &target
	return body
}
