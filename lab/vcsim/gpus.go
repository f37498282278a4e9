// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"slices"
	"strings"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

const (
	nvidia       = 0x10de
	basic        = "basic" // no driver of the host runs the GPU
	shared       = "shared"
	sharedDirect = "sharedDirect"
	sameSize     = "sameSize"
	mixedSize    = "mixedSize"
	mig          = "multiInstanceGpu"
)

// gpu is a physical GPU, and what the vGPU manager offers on it.
type gpu struct {
	Name     string    `json:"name"`
	PciID    string    `json:"pci"`
	MemoryGB int64     `json:"memory_gb"`
	Profiles []profile `json:"profiles"`
	// Mode is how the GPU is divided: sameSize (default), mixedSize or multiInstanceGpu.
	Mode string `json:"mode"`
	// active is the graphics type that the driver runs with; the configured one becomes active with a restart.
	active string
}

type profile struct {
	Name  string `json:"name"`
	FB    int64  `json:"fb_gb"`
	Class string `json:"class"` // compute or quadro
	MIG   bool   `json:"mig"`
	Max   int    `json:"max"` // instances on each GPU
}

// gpuHost is the graphics part of an ESXi host.
type gpuHost struct {
	sync.Mutex
	ref          types.ManagedObjectReference
	gpus         []*gpu
	config       types.HostGraphicsConfig
	manager      *graphicsManager
	vibs         []softwareName
	disconnected bool // by the fault host-disconnected
}

// managed returns whether the vGPU manager is installed.
func (h *gpuHost) managed() bool {
	return slices.ContainsFunc(h.vibs, func(one softwareName) bool { return strings.HasPrefix(one.Name, "NVD-VMware") })
}

// migCapable returns whether the GPU has MIG-backed profiles.
func (g *gpu) migCapable() bool {
	return slices.ContainsFunc(g.Profiles, func(one profile) bool { return one.MIG })
}

// offers returns a GPU's profiles as it runs now: none without the manager or with another graphics type; MIG-backed ones only with MIG on.
func (h *gpuHost) offers(card *gpu) []profile {
	var found []profile
	for _, one := range card.Profiles {
		if h.managed() && card.active == sharedDirect && one.MIG == (card.Mode == mig) {
			found = append(found, one)
		}
	}
	return found
}

// known returns all profiles of a host, by name.
func (h *gpuHost) known() map[string]profile {
	found := map[string]profile{}
	for _, card := range h.gpus {
		for _, one := range h.offers(card) {
			found[one.Name] = one
		}
	}
	return found
}

// place returns the number of the GPU for each of these profiles (first fit), and whether the GPUs have room for all of them. A GPU in the mode sameSize
// runs profiles of one size of frame buffer at a time, also of several series. MIG instances of a GPU share its memory.
func (h *gpuHost) place(wanted []string) ([]int, bool) {
	cards := make([][]profile, len(h.gpus))
	var placed []int
	for _, name := range wanted {
		number := slices.IndexFunc(h.gpus, func(card *gpu) bool { return h.takes(card, &cards[slices.Index(h.gpus, card)], name) })
		if number < 0 {
			return placed, false
		}
		placed = append(placed, number)
	}
	return placed, true
}

// fits returns whether the GPUs have room for vGPUs with these profiles.
func (h *gpuHost) fits(wanted []string) bool {
	_, room := h.place(wanted)
	return room
}

func (h *gpuHost) takes(card *gpu, used *[]profile, name string) bool {
	offered := h.offers(card)
	number := slices.IndexFunc(offered, func(one profile) bool { return one.Name == name })
	if number < 0 {
		return false
	}
	one := offered[number]
	var memory int64
	same, sizes := 0, 1
	for _, other := range *used {
		memory += other.FB
		if other.Name == name {
			same++
		}
		if other.FB != one.FB {
			sizes++
		}
	}
	if card.Mode == sameSize && sizes > 1 || same >= one.Max || memory+one.FB > card.MemoryGB {
		return false
	}
	*used = append(*used, one)
	return true
}

// window returns the 64-bit MMIO window in GB that vGPUs with these profiles need: for each, twice the next power of two of its GPU's memory.
func (h *gpuHost) window(wanted []string) int64 {
	var sum int64
	for _, name := range wanted {
		for _, card := range h.gpus {
			if slices.ContainsFunc(card.Profiles, func(one profile) bool { return one.Name == name }) {
				size := int64(1)
				for size < card.MemoryGB {
					size *= 2
				}
				sum += 2 * size
				break
			}
		}
	}
	return sum
}

// running returns the profiles of all vGPUs of the host's running VMs, and the VM of each.
func (c *vCenter) running(ctx *simulator.Context, host *gpuHost) ([]string, []types.ManagedObjectReference) {
	var used []string
	var users []types.ManagedObjectReference
	for _, ref := range ctx.Map.Get(host.ref).(*simulator.HostSystem).Vm {
		vm := machineOf(ctx, ref)
		if vm != nil && vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn {
			for _, name := range profilesOf(vm) {
				used, users = append(used, name), append(users, ref)
			}
		}
	}
	return used, users
}

// profilesOf returns the profiles of a VM's vGPUs.
func profilesOf(vm *simulator.VirtualMachine) []string {
	var found []string
	for _, one := range vm.Config.Hardware.Device {
		if backing, ok := one.GetVirtualDevice().Backing.(*types.VirtualPCIPassthroughVmiopBackingInfo); ok {
			found = append(found, backing.Vgpu)
		}
	}
	return found
}

// publish writes a host's graphics into its properties.
func (c *vCenter) publish(ctx *simulator.Context, host *gpuHost) {
	var info []types.HostGraphicsInfo
	var capabilities []types.HostSharedGpuCapabilities
	var placeable []string
	used, users := c.running(ctx, host)
	placed, _ := host.place(used)
	for number, card := range host.gpus {
		active := card.active
		if !host.managed() {
			active = basic
		}
		one := types.HostGraphicsInfo{DeviceName: card.Name, VendorName: "NVIDIA Corporation", PciId: card.PciID,
			GraphicsType: active, VgpuMode: c.shown(card.Mode), MemorySizeInKB: card.MemoryGB << 20}
		for index, at := range placed {
			if at == number && !slices.Contains(one.Vm, users[index]) {
				one.Vm = append(one.Vm, users[index])
			}
		}
		info = append(info, one)
		for _, one := range host.offers(card) {
			if slices.ContainsFunc(capabilities, func(other types.HostSharedGpuCapabilities) bool { return other.Vgpu == one.Name }) {
				continue
			}
			capabilities = append(capabilities, types.HostSharedGpuCapabilities{Vgpu: one.Name, MigrateSupported: true, SuspendSupported: true})
			if host.fits(append(slices.Clone(used), one.Name)) {
				placeable = append(placeable, one.Name)
			}
		}
	}
	config := host.config
	ctx.Map.AtomicUpdate(ctx, ctx.Map.Get(host.ref).(*simulator.HostSystem), []types.PropertyChange{
		{Name: "config.graphicsInfo", Val: info}, {Name: "config.graphicsConfig", Val: &config},
		{Name: "config.sharedGpuCapabilities", Val: capabilities}, {Name: "config.sharedPassthruGpuTypes", Val: placeable}})
	host.manager.GraphicsInfo, host.manager.GraphicsConfig = info, &config
	host.manager.SharedGpuCapabilities, host.manager.SharedPassthruGpuTypes = capabilities, placeable
}

// devices returns the GPU models of a host that has the vGPU manager.
func (h *gpuHost) devices() []types.VirtualMachineVgpuDeviceInfo {
	var found []types.VirtualMachineVgpuDeviceInfo
	for _, card := range h.gpus {
		one := types.VirtualMachineVgpuDeviceInfo{DeviceName: card.Name, DeviceVendorId: nvidia, MaxFbSizeInGib: card.MemoryGB, TimeSlicedCapable: true}
		one.Name = card.Name
		one.MigCapable = card.migCapable()
		for _, p := range card.Profiles {
			one.ComputeProfileCapable = one.ComputeProfileCapable || p.Class == "compute"
			one.QuadroProfileCapable = one.QuadroProfileCapable || p.Class == "quadro"
		}
		if h.managed() && !slices.ContainsFunc(found, func(other types.VirtualMachineVgpuDeviceInfo) bool { return other.DeviceName == card.Name }) {
			found = append(found, one)
		}
	}
	return found
}

// profiles returns the profiles of a host by name.
func (h *gpuHost) profiles() []types.VirtualMachineVgpuProfileInfo {
	var found []types.VirtualMachineVgpuProfileInfo
	for name, one := range h.known() {
		sharing := "timeSliced"
		if one.MIG {
			sharing = "mig"
		}
		info := types.VirtualMachineVgpuProfileInfo{ProfileName: name, DeviceVendorId: nvidia, FbSizeInGib: one.FB, ProfileSharing: sharing, ProfileClass: one.Class}
		info.Name = name
		found = append(found, info)
	}
	slices.SortFunc(found, func(a, b types.VirtualMachineVgpuProfileInfo) int {
		return strings.Compare(a.ProfileName, b.ProfileName)
	})
	return found
}
