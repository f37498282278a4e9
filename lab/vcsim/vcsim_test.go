// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/event"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

var (
	tenC    = profile{Name: "grid_a100-10c", FB: 10, Class: "compute", Max: 4}
	tenQ    = profile{Name: "grid_a100-10q", FB: 10, Class: "quadro", Max: 4}
	twentyC = profile{Name: "grid_a100-20c", FB: 20, Class: "compute", Max: 2}
	sliced  = profile{Name: "grid_a100-3-20c", FB: 20, Class: "compute", Max: 2, MIG: true}
	manager = []softwareName{{Name: "NVD-VMware_ESXi_8.0.0_Driver", Version: "550.163.02", Vendor: "NVIDIA"}}
)

func card(mode string) *gpu {
	return &gpu{Name: "NVIDIA A100", MemoryGB: 40, Profiles: []profile{tenC, tenQ, twentyC, sliced}, Mode: mode, active: sharedDirect}
}

func TestPlace(t *testing.T) {
	for name, one := range map[string]struct {
		cards  []*gpu
		wanted []string
		fits   bool
	}{
		"four of one size":        {[]*gpu{card(sameSize)}, []string{tenC.Name, tenC.Name, tenC.Name, tenC.Name}, true},
		"one too many":            {[]*gpu{card(sameSize)}, []string{tenC.Name, tenC.Name, tenC.Name, tenC.Name, tenC.Name}, false},
		"two sizes on a GPU":      {[]*gpu{card(sameSize)}, []string{tenC.Name, twentyC.Name}, false},
		"two series of one size":  {[]*gpu{card(sameSize)}, []string{tenC.Name, tenQ.Name, tenQ.Name, tenC.Name}, true},
		"two series, memory":      {[]*gpu{card(sameSize)}, []string{tenC.Name, tenQ.Name, tenQ.Name, tenC.Name, tenQ.Name}, false},
		"two sizes on two GPUs":   {[]*gpu{card(sameSize), card(sameSize)}, []string{tenC.Name, twentyC.Name}, true},
		"mixed sizes":             {[]*gpu{card(mixedSize)}, []string{tenC.Name, twentyC.Name, tenC.Name}, true},
		"mixed sizes, memory":     {[]*gpu{card(mixedSize)}, []string{twentyC.Name, twentyC.Name, tenC.Name}, false},
		"MIG-backed without MIG":  {[]*gpu{card(sameSize)}, []string{sliced.Name}, false},
		"MIG-backed":              {[]*gpu{card(mig)}, []string{sliced.Name, sliced.Name}, true},
		"time-sliced with MIG on": {[]*gpu{card(mig)}, []string{tenC.Name}, false},
		"nothing":                 {nil, nil, true},
	} {
		h := &gpuHost{gpus: one.cards, vibs: manager}
		if h.fits(one.wanted) != one.fits {
			t.Errorf("%s: not %v", name, one.fits)
		}
	}
	if (&gpuHost{gpus: []*gpu{card(sameSize)}}).fits([]string{tenC.Name}) {
		t.Error("a host without the vGPU manager offers a profile")
	}
}

func TestWindowIsTwiceTheNextPowerOfTwo(t *testing.T) {
	h := &gpuHost{gpus: []*gpu{card(sameSize)}}
	if actual := h.window([]string{tenC.Name, tenC.Name}); actual != 256 {
		t.Error(actual)
	}
}

func TestMutates(t *testing.T) {
	for _, name := range []string{"RetrievePropertiesEx", "QueryConfigTarget", "CreateImportSpec", "HasPrivilegeOnEntities", "QueryEvents", "WaitForUpdatesEx",
		"CreateContainerView", "DestroyView", "CreateFilter", "FetchSoftwarePackages", "FindByInventoryPath", "SessionIsActive", "CreatePropertyCollector",
		"DestroyPropertyFilter", "Login", "Logout", "CurrentTime", "ContinueRetrievePropertiesEx"} {
		if mutates(name) {
			t.Error(name, "only reads")
		}
	}
	for _, name := range []string{"ImportVApp", "ReconfigVM_Task", "CreateFolder", "Destroy_Task", "DestroyNetwork", "UpdateGraphicsConfig", "PowerOnMultiVM_Task",
		"MarkAsTemplate", "HttpNfcLeaseProgress", "RefreshGraphicsManager", "CreateVM_Task", "PostEvent"} {
		if !mutates(name) {
			t.Error(name, "changes something")
		}
	}
}

func TestATypeOfGoIsNoMessage(t *testing.T) {
	for given, wanted := range map[string]string{
		"*types.FileAlreadyExists":  "Cannot complete the operation because the file or folder already exists.",
		"*types.VmConfigFault":      "VmConfigFault",
		"The disk *types.X is full": "The disk *types.X is full",
	} {
		answer := string(withMessages([]byte("<a><localizedMessage>" + given + "</localizedMessage></a>")))
		if answer != "<a><localizedMessage>"+wanted+"</localizedMessage></a>" {
			t.Error(answer)
		}
	}
}

func TestAFileIsReadAgainAfterAChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.json")
	file := &jsonFile[map[string]int]{path: path}
	if file.read() != nil {
		t.Error("a missing file has content")
	}
	write(t, path, map[string]int{"a": 1})
	if _, version := file.versioned(); version != 1 || file.read()["a"] != 1 {
		t.Error("the new file is not read")
	}
	if _, version := file.versioned(); version != 1 {
		t.Error("the file has not changed")
	}
	if err := os.WriteFile(path, []byte("{ not JSON"), 0o600); err != nil {
		t.Fatal(err)
	}
	if file.read()["a"] != 1 {
		t.Error("an invalid file has an effect")
	}
}

func write(t *testing.T, path string, content any) {
	t.Helper()
	data, err := json.Marshal(content)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// world is a running vCenter with a client.
type world struct {
	*vCenter
	ctx    context.Context
	client *govmomi.Client
	finder *find.Finder
	folder string
}

func newWorld(t *testing.T, folder string) *world {
	t.Helper()
	plan := inventory{Datacenters: []datacenter{{Name: "DC1", Folders: []string{"openshift/machines"}, Clusters: []cluster{{
		Name: "cluster-a", Datastores: []string{"vsan-a"}, Pools: []string{"gpu"}, Hosts: []host{
			{Name: "esx-a1", Graphics: shared, VIBs: manager, GPUs: []gpu{*card(sameSize)}},
			{Name: "esx-a2", Graphics: sharedDirect, VIBs: manager, GPUs: []gpu{*card(sameSize)}},
		}}}}}}
	files := options{listen: "127.0.0.1:0", version: "8.0.3.0", inventory: filepath.Join(folder, "inventory.json"), users: filepath.Join(folder, "users.json"),
		settings: filepath.Join(folder, "settings.json"), calls: filepath.Join(folder, "calls.jsonl"), state: filepath.Join(folder, "state.json")}
	write(t, files.inventory, plan)
	write(t, files.users, map[string]user{"admin": {Password: "a"}, "limited": {Password: "b", Permissions: map[string][]string{
		"/": {"VirtualMachine.Interact.PowerOn", "VirtualMachine.Interact.PowerOff"}, "/DC1/vm/openshift": {"VirtualMachine.Interact.PowerOff"}}}})
	center, err := start(files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { center.state.changed.Store(0) })
	found := &world{vCenter: center, ctx: context.Background(), folder: folder}
	found.client = found.login(t, "admin", "a")
	found.finder = find.NewFinder(found.client.Client)
	return found
}

func (w *world) login(t *testing.T, name, password string) *govmomi.Client {
	t.Helper()
	address := *w.server.URL
	address.User = nil
	client, err := govmomi.NewClient(w.ctx, &address, true)
	if err == nil {
		err = client.Login(w.ctx, url.UserPassword(name, password))
	}
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// template creates a VM with vGPUs, as large as its memory lock and its window allow.
func (w *world) template(t *testing.T, profiles ...string) *object.VirtualMachine {
	t.Helper()
	return w.machine(t, "template", true, "256", profiles...)
}

func (w *world) machine(t *testing.T, name string, locked bool, window string, profiles ...string) *object.VirtualMachine {
	t.Helper()
	spec := types.VirtualMachineConfigSpec{Name: name, GuestId: "rhel8_64Guest", MemoryMB: 4096, NumCPUs: 2, Firmware: "efi", Annotation: "made by a test",
		Files: &types.VirtualMachineFileInfo{VmPathName: "[vsan-a]"}, MemoryReservationLockedToMax: &locked, ExtraConfig: []types.BaseOptionValue{
			&types.OptionValue{Key: "pciPassthru.use64bitMMIO", Value: "TRUE"}, &types.OptionValue{Key: "pciPassthru.64bitMMIOSizeGB", Value: window}}}
	for number, one := range profiles {
		device := &types.VirtualPCIPassthrough{VirtualDevice: types.VirtualDevice{Key: int32(-200 - number),
			Backing: &types.VirtualPCIPassthroughVmiopBackingInfo{Vgpu: one}}}
		spec.DeviceChange = append(spec.DeviceChange, &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: device})
	}
	folder, err := w.finder.Folder(w.ctx, "/DC1/vm/openshift/machines")
	if err != nil {
		t.Fatal(err)
	}
	pool, err := w.finder.ResourcePool(w.ctx, "/DC1/host/cluster-a/Resources/gpu")
	if err != nil {
		t.Fatal(err)
	}
	task, err := folder.CreateVM(w.ctx, spec, pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	result, err := task.WaitForResult(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	return object.NewVirtualMachine(w.client.Client, result.Result.(types.ManagedObjectReference))
}

func (w *world) read(t *testing.T, vm *object.VirtualMachine) mo.VirtualMachine {
	t.Helper()
	var found mo.VirtualMachine
	if err := vm.Properties(w.ctx, vm.Reference(), []string{"config", "runtime", "name"}, &found); err != nil {
		t.Fatal(err)
	}
	return found
}

func run(w *world, task *object.Task, err error) string {
	if err == nil {
		err = task.Wait(w.ctx)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func TestRefusalsOfPowerOn(t *testing.T) {
	w := newWorld(t, t.TempDir())
	for name, one := range map[string]struct {
		vm   *object.VirtualMachine
		want string
	}{
		"room":        {w.machine(t, "room", true, "256", twentyC.Name, twentyC.Name), ""},
		"unlocked":    {w.machine(t, "unlocked", false, "256", twentyC.Name), "memory reservation (sched.mem.min)"},
		"window":      {w.machine(t, "window", true, "127", twentyC.Name), "MMIO"},
		"not offered": {w.machine(t, "not-offered", true, "256", sliced.Name), "No host is compatible"},
	} {
		task, err := one.vm.PowerOn(w.ctx)
		if message := run(w, task, err); !strings.Contains(message, one.want) || (one.want == "") != (message == "") {
			t.Errorf("%s: %q", name, message)
		}
		if one.want == "" {
			task, err = one.vm.PowerOff(w.ctx)
			if message := run(w, task, err); message != "" {
				t.Error(message)
			}
		}
	}
	// The first host has no shared GPUs, the second has room for two.
	first, second := w.machine(t, "first", true, "256", twentyC.Name, twentyC.Name), w.machine(t, "second", true, "256", twentyC.Name)
	task, err := first.PowerOn(w.ctx)
	if message := run(w, task, err); message != "" {
		t.Error(message)
	}
	center, err := w.finder.Datacenter(w.ctx, "/DC1")
	if err != nil {
		t.Fatal(err)
	}
	task, err = center.PowerOnVM(w.ctx, []types.ManagedObjectReference{second.Reference()})
	if err != nil {
		t.Fatal(err)
	}
	result, err := task.WaitForResult(w.ctx)
	if err != nil {
		t.Fatal("the task of several VMs fails:", err)
	}
	refused := result.Result.(types.ClusterPowerOnVmResult).NotAttempted
	if len(refused) != 1 || !strings.Contains(refused[0].Fault.LocalizedMessage, "graphics resource") {
		t.Error(refused)
	}
	events, err := event.NewManager(w.client.Client).QueryEvents(w.ctx, types.EventFilterSpec{EventTypeId: []string{"VmFailedToPowerOnEvent"}})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(events, func(one types.BaseEvent) bool {
		failure := one.(*types.VmFailedToPowerOnEvent)
		return failure.Vm.Name == "second" && strings.Contains(failure.Reason.LocalizedMessage, "graphics resource")
	}) {
		t.Error(events)
	}
}

func TestAHostThatIsFullOffersNothing(t *testing.T) {
	w := newWorld(t, t.TempDir())
	task, err := w.machine(t, "one", true, "256", twentyC.Name).PowerOn(w.ctx)
	if message := run(w, task, err); message != "" {
		t.Fatal(message)
	}
	system, err := w.finder.HostSystem(w.ctx, "/DC1/host/cluster-a/esx-a2")
	if err != nil {
		t.Fatal(err)
	}
	var found mo.HostSystem
	for range 100 {
		if err := system.Properties(w.ctx, system.Reference(), []string{"config.sharedPassthruGpuTypes"}, &found); err != nil {
			t.Fatal(err)
		}
		if slices.Equal(found.Config.SharedPassthruGpuTypes, []string{twentyC.Name}) { // one size on a GPU
			return
		}
		time.Sleep(pollTime)
	}
	t.Error(found.Config.SharedPassthruGpuTypes)
}

// graphics are the properties of a host that show its graphics.
func (w *world) graphics(t *testing.T, name string) (*object.HostSystem, mo.HostSystem) {
	t.Helper()
	system, err := w.finder.HostSystem(w.ctx, "/DC1/host/cluster-a/"+name)
	if err != nil {
		t.Fatal(err)
	}
	var found mo.HostSystem
	properties := []string{"config.graphicsInfo", "config.graphicsConfig", "config.sharedGpuCapabilities", "configManager.graphicsManager", "runtime"}
	if err := system.Properties(w.ctx, system.Reference(), properties, &found); err != nil {
		t.Fatal(err)
	}
	return system, found
}

// configure replaces the graphics configuration of a host's only GPU, and returns the message of the fault.
func (w *world) configure(t *testing.T, name, graphics, mode string) string {
	t.Helper()
	_, shown := w.graphics(t, name)
	config := types.HostGraphicsConfig{HostDefaultGraphicsType: graphics, SharedPassthruAssignmentPolicy: "performance",
		DeviceType: []types.HostGraphicsConfigDeviceType{{DeviceId: shown.Config.GraphicsInfo[0].PciId, GraphicsType: graphics, VgpuMode: mode}}}
	request := types.UpdateGraphicsConfig{This: *shown.ConfigManager.GraphicsManager, Config: config}
	if _, err := methods.UpdateGraphicsConfig(w.ctx, w.client.Client, &request); err != nil {
		return err.Error()
	}
	return ""
}

// activeGraphics waits until the host is connected, and returns the graphics type, the mode and the profiles that its only GPU runs with.
func (w *world) activeGraphics(t *testing.T, name string) string {
	t.Helper()
	for range 100 {
		_, shown := w.graphics(t, name)
		if shown.Runtime.ConnectionState != types.HostSystemConnectionStateConnected {
			time.Sleep(pollTime)
			continue
		}
		words := []string{shown.Config.GraphicsInfo[0].GraphicsType, shown.Config.GraphicsInfo[0].VgpuMode}
		for _, one := range shown.Config.SharedGpuCapabilities {
			words = append(words, one.Vgpu)
		}
		return strings.Join(words, " ")
	}
	t.Fatal("the host stays disconnected")
	return ""
}

func (w *world) reboot(t *testing.T, name string) {
	t.Helper()
	system, _ := w.graphics(t, name)
	request := types.RebootHost_Task{This: system.Reference()}
	if _, err := methods.RebootHost_Task(w.ctx, w.client.Client, &request); err == nil || !strings.Contains(err.Error(), "current state") {
		t.Error("a host in use is rebooted:", err)
	}
	task, err := system.EnterMaintenanceMode(w.ctx, 0, false, nil)
	if message := run(w, task, err); message != "" {
		t.Fatal(message)
	}
	if _, err := methods.RebootHost_Task(w.ctx, w.client.Client, &request); err != nil {
		t.Fatal(err)
	}
	if message := w.configure(t, name, shared, ""); !strings.Contains(message, "not connected") {
		t.Errorf("a host that is rebooting answers: %q", message)
	}
	w.activeGraphics(t, name)
	task, err = system.ExitMaintenanceMode(w.ctx, 0)
	if message := run(w, task, err); message != "" {
		t.Fatal(message)
	}
}

func TestGraphicsBecomeActiveWithARestart(t *testing.T) {
	w := newWorld(t, t.TempDir())
	write(t, w.settings.path, map[string]any{"settings": map[string]string{"vsphere.reboot-seconds": "0.1"}})
	const name = "esx-a1"
	expect := func(wanted string) {
		t.Helper()
		if actual := w.activeGraphics(t, name); actual != wanted {
			t.Errorf("%s, not %s", actual, wanted)
		}
	}
	expect("shared sameSize")
	if message := w.configure(t, name, sharedDirect, mixedSize); message != "" {
		t.Fatal(message)
	}
	expect("shared sameSize")
	// Xorg does not change the mode.
	_, shown := w.graphics(t, name)
	services := types.ManagedObjectReference{Type: "HostServiceSystem", Value: strings.Replace(shown.ConfigManager.GraphicsManager.Value, "graphics", "services", 1)}
	if _, err := methods.RestartService(w.ctx, w.client.Client, &types.RestartService{This: services, Id: "xorg"}); err != nil {
		t.Fatal(err)
	}
	expect("sharedDirect sameSize grid_a100-10c grid_a100-10q grid_a100-20c")
	w.reboot(t, name)
	expect("sharedDirect mixedSize grid_a100-10c grid_a100-10q grid_a100-20c")
	if message := w.configure(t, name, sharedDirect, mig); message != "" {
		t.Fatal(message)
	}
	if message := w.configure(t, name, sharedDirect, ""); message != "" { // without a mode, it is kept
		t.Fatal(message)
	}
	w.reboot(t, name)
	expect("sharedDirect multiInstanceGpu grid_a100-3-20c")
}

func TestRefusalsOfGraphics(t *testing.T) {
	w := newWorld(t, t.TempDir())
	task, err := w.machine(t, "user", true, "256", twentyC.Name).PowerOn(w.ctx)
	if message := run(w, task, err); message != "" {
		t.Fatal(message)
	}
	if message := w.configure(t, "esx-a2", shared, ""); !strings.Contains(message, "while virtual machines use the GPUs") {
		t.Errorf("%q", message)
	}
	for range 100 {
		if _, shown := w.graphics(t, "esx-a2"); len(shown.Config.GraphicsInfo[0].Vm) == 1 {
			break
		}
		time.Sleep(pollTime)
	}
	if _, shown := w.graphics(t, "esx-a2"); len(shown.Config.GraphicsInfo[0].Vm) != 1 {
		t.Error("the GPU has no user:", shown.Config.GraphicsInfo)
	}
	for mode, allowed := range map[string]bool{"": true, sameSize: true, mixedSize: true, mig: true, "none": false, "other": false} {
		if message := w.configure(t, "esx-a1", shared, mode); (message == "") != allowed {
			t.Errorf("%q: %q", mode, message)
		}
	}
	write(t, w.settings.path, map[string]any{"settings": map[string]string{"vsphere.mig-by-api": "false"}})
	if w.configure(t, "esx-a1", shared, mig) == "" {
		t.Error("MIG is configured over the API")
	}
	plain := card(sameSize)
	plain.Profiles = []profile{tenC}
	if w.settable(plain, mig) {
		t.Error("a GPU without MIG-backed profiles has MIG")
	}
}

func TestWithoutTheManagerNoDriverRunsAGPU(t *testing.T) {
	w := newWorld(t, t.TempDir())
	system, _ := w.graphics(t, "esx-a2")
	host := w.hosts[system.Reference().Value]
	host.vibs = nil
	w.publish(&simulator.Context{Map: w.registry}, host)
	if actual := w.activeGraphics(t, "esx-a2"); actual != "basic sameSize" {
		t.Error(actual)
	}
}

func TestACloneInheritsEverything(t *testing.T) {
	w := newWorld(t, t.TempDir())
	source := w.template(t, tenC.Name, tenC.Name)
	if err := source.MarkAsTemplate(w.ctx); err != nil {
		t.Fatal(err)
	}
	folder, err := w.finder.Folder(w.ctx, "/DC1/vm/openshift")
	if err != nil {
		t.Fatal(err)
	}
	pool, err := w.finder.ResourcePool(w.ctx, "/DC1/host/cluster-a/Resources")
	if err != nil {
		t.Fatal(err)
	}
	ref := pool.Reference()
	task, err := source.Clone(w.ctx, folder, "clone", types.VirtualMachineCloneSpec{Location: types.VirtualMachineRelocateSpec{Pool: &ref},
		Config: &types.VirtualMachineConfigSpec{MemoryMB: 8192, NumCPUs: 8, InstanceUuid: "11111111-2222-3333-4444-555555555555",
			ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: "guestinfo.hostname", Value: "clone"}}}})
	if message := run(w, task, err); message != "" {
		t.Fatal(message)
	}
	clone, err := w.finder.VirtualMachine(w.ctx, "/DC1/vm/openshift/clone")
	if err != nil {
		t.Fatal(err)
	}
	actual := w.read(t, clone).Config
	vm := machineOf(&simulator.Context{Map: w.registry}, clone.Reference())
	if actual.Firmware != "efi" || actual.Annotation != "made by a test" || !*actual.MemoryReservationLockedToMax || actual.Hardware.MemoryMB != 8192 ||
		actual.Hardware.NumCPU != 8 || actual.InstanceUuid != "11111111-2222-3333-4444-555555555555" || actual.Template ||
		option(vm, "guestinfo.hostname") != "clone" || option(vm, "pciPassthru.64bitMMIOSizeGB") != "256" || len(profilesOf(vm)) != 2 {
		t.Errorf("%+v", actual)
	}
}

func TestTheNearestPermissionApplies(t *testing.T) {
	w := newWorld(t, t.TempDir())
	vm := w.template(t)
	limited := object.NewVirtualMachine(w.login(t, "limited", "b").Client, vm.Reference())
	task, err := limited.PowerOn(w.ctx)
	if message := run(w, task, err); !strings.Contains(message, "Permission to perform this operation was denied") {
		t.Errorf("%q", message)
	}
	ctx := &simulator.Context{Map: w.registry}
	system, _ := w.finder.HostSystem(w.ctx, "/DC1/host/cluster-a/esx-a2")
	for object, granted := range map[types.ManagedObjectReference]bool{system.Reference(): true, vm.Reference(): false} {
		if w.granted(ctx, "limited", object, "VirtualMachine.Interact.PowerOn") != granted {
			t.Error(object, "not", granted)
		}
	}
	if !w.granted(ctx, "admin", vm.Reference(), "Anything.Else") || w.granted(ctx, "unknown", vm.Reference(), "System.Read") {
		t.Error("administrators may do everything, unknown users nothing")
	}
}

func TestMachinesSurviveARestart(t *testing.T) {
	folder := t.TempDir()
	before := newWorld(t, folder)
	template, machine := before.template(t, tenC.Name), before.machine(t, "machine", true, "256", tenC.Name)
	task, err := machine.PowerOn(before.ctx)
	if message := run(before, task, err); message != "" {
		t.Fatal(message)
	}
	if err := template.MarkAsTemplate(before.ctx); err != nil {
		t.Fatal(err)
	}
	before.save()
	before.state.changed.Store(0)
	after := newWorld(t, folder)
	for _, one := range []*object.VirtualMachine{template, machine} {
		wanted := before.read(t, one)
		found, err := after.finder.VirtualMachine(after.ctx, "/DC1/vm/openshift/machines/"+wanted.Name)
		if err != nil {
			t.Fatal(err)
		}
		actual := after.read(t, found)
		first, second := new(bytes.Buffer), new(bytes.Buffer)
		for text, config := range map[*bytes.Buffer]*types.VirtualMachineConfigInfo{first: wanted.Config, second: actual.Config} {
			config.Modified, config.DatastoreUrl = time.Time{}, nil
			if err := types.NewJSONEncoder(text).Encode(*config); err != nil {
				t.Fatal(err)
			}
		}
		if first.String() != second.String() || actual.Runtime.PowerState != wanted.Runtime.PowerState {
			t.Errorf("%s\n%s", first, second)
		}
	}
	calls, err := os.ReadFile(filepath.Join(folder, "calls.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(calls), "\n"); lines != 4 { // the restart changes nothing
		t.Error(string(calls))
	}
}

func TestAMissingObjectIsNamed(t *testing.T) {
	w := newWorld(t, t.TempDir())
	gone := object.NewTask(w.client.Client, types.ManagedObjectReference{Type: "Task", Value: "task-999"})
	err := gone.Properties(w.ctx, gone.Reference(), []string{"info"}, new(mo.Task))
	if err == nil || !strings.Contains(err.Error(), "The object 'vim.Task:task-999' has already been deleted") {
		t.Error(err)
	}
}

func TestAnExpiredSessionCanLogInAgain(t *testing.T) {
	w := newWorld(t, t.TempDir())
	if _, err := w.finder.Datacenter(w.ctx, "/DC1"); err != nil {
		t.Fatal(err)
	}
	write(t, w.settings.path, map[string]any{"faults": []any{map[string]any{"name": "vsphere.session-expired"}}})
	if _, err := w.finder.Datacenter(w.ctx, "/DC1"); err == nil || !strings.Contains(err.Error(), "session is not authenticated") {
		t.Error("the session has not expired:", err)
	}
	for _, password := range []string{"wrong", "a"} {
		refused := password == "wrong"
		err := w.client.Login(w.ctx, url.UserPassword("admin", password))
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "incorrect user name or password") {
			t.Error(password, err)
		}
	}
	if _, err := w.finder.Datacenter(w.ctx, "/DC1"); err != nil {
		t.Error(err)
	}
}
