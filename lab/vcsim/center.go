// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"crypto/tls"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// vCenter has the methods that a real vCenter implements differently; `handle` sends their calls here.
//
// The simulator prefers the object of `Method.This` to the one that a registry's Handler returns, so the handler changes `This`;
// the request keeps the object that the client named.
type vCenter struct {
	mo.ExtensibleManagedObject
	server   *simulator.Server
	registry *simulator.Registry
	uploads  string // the address for uploads
	images   string // the address of the images
	hosts    map[string]*gpuHost
	stores   map[string]string // the folder of each datastore
	folder   string            // the folder of the datastores
	version  []int
	users    *jsonFile[map[string]user]
	settings *jsonFile[settings]
	calls    *callLog // what changes something
	requests *callLog // all requests
	state    *stateFile
	ready    atomic.Bool
	leases   sync.Map // id of an HttpNfcLease -> *lease

	faults       sync.Mutex // of the application of faults
	applied      int        // the version of the settings whose faults are applied
	expired      bool       // the fault session-expired is applied
	sessionsFrom atomic.Int64
	certificate  *tls.Certificate
	selfSigned   *tls.Certificate // of the ESXi hosts, with the fault untrusted-certificate
}

// Reference returns the reference that Registry.Put sets; its type is not one of vSphere's, so that no view lists the object.
func (c *vCenter) Reference() types.ManagedObjectReference { return c.Self }

// Lock and Unlock opt out of the simulator's lock for each object.
func (c *vCenter) Lock() {}

// Unlock belongs to Lock.
func (c *vCenter) Unlock() {}

var overridden = []string{
	"CloneVM_Task", "CreateImportSpec", "ImportVApp", "HttpNfcLeaseAbort", "HttpNfcLeaseComplete", "HttpNfcLeaseProgress",
	"PowerOnMultiVM_Task", "PowerOnVM_Task", "PowerOffVM_Task", "QueryConfigTarget", "RebootHost_Task", "ReconfigVM_Task",
	"HasPrivilegeOnEntities", "HasUserPrivilegeOnEntities", "FetchUserPrivilegeOnEntities", "Destroy_Task",
}

// handle sees each call before the simulator does: it logs it, refuses it, or sends it to the vCenter's own methods.
func (c *vCenter) handle(ctx *simulator.Context, method *simulator.Method) (mo.Reference, types.BaseMethodFault) {
	if !c.ready.Load() {
		return nil, nil
	}
	name := strings.ToUpper(method.Name[:1]) + method.Name[1:] // pyVmomi calls some methods with a small first letter
	c.faults.Lock()
	c.refresh(ctx)
	c.faults.Unlock()
	expired := ctx.Session != nil && c.isExpired(ctx.Session)
	if name == "Login" && (ctx.Session == nil || expired) {
		method.This = c.Self
		return c, nil
	}
	if expired && name != "RetrieveServiceContent" {
		object := method.This
		return nil, &types.NotAuthenticated{NoPermission: types.NoPermission{Object: &object, PrivilegeId: "System.View"}}
	}
	if fault := c.deny(ctx, name, method); fault != nil {
		return nil, fault
	}
	if mutates(name) {
		c.calls.add(ctx, name, method.This)
		c.state.touch()
	}
	if fault := c.unreachable(ctx, name, method.This); fault != nil {
		return nil, fault
	}
	if value, set := c.fault(taskFails); set && value == name {
		return nil, &types.SystemErrorFault{Reason: "the fault task-fails"}
	}
	if missing(ctx, method) != nil {
		method.This = c.Self
	}
	if slices.Contains(overridden, name) && (name != "Destroy_Task" || method.This.Type == "VirtualMachine") {
		method.This = c.Self
	}
	return nil, nil
}

// The methods that vCenter forwards to the host.
var forwarded = []string{
	"UpdateGraphicsConfig", "RetrieveVgpuDeviceInfo", "RetrieveVgpuProfileInfo", "FetchSoftwarePackages", "RestartService", "RebootHost_Task",
	"EnterMaintenanceMode_Task", "ExitMaintenanceMode_Task",
}

// unreachable returns HostNotConnected for a call that a disconnected host would have to answer.
func (c *vCenter) unreachable(ctx *simulator.Context, name string, ref types.ManagedObjectReference) types.BaseMethodFault {
	system, ok := ctx.Map.Get(c.entityOf(ctx, ref)).(*simulator.HostSystem)
	if !ok || !slices.Contains(forwarded, name) || system.Runtime.ConnectionState == types.HostSystemConnectionStateConnected {
		return nil
	}
	return &types.HostNotConnected{}
}

// missing returns an object whose properties a call reads, and which does not exist: a task of an earlier run, for example.
func missing(ctx *simulator.Context, method *simulator.Method) *types.ManagedObjectReference {
	var specs []types.PropertyFilterSpec
	switch req := method.Body.(type) {
	case *types.RetrieveProperties:
		specs = req.SpecSet
	case *types.RetrievePropertiesEx:
		specs = req.SpecSet
	}
	for _, spec := range specs {
		for _, one := range spec.ObjectSet {
			if ctx.Session != nil && ctx.Session.Get(one.Obj) == nil {
				return &one.Obj
			}
		}
	}
	return nil
}

// RetrieveProperties names the object that does not exist, as a real vCenter does and OpenShift's machine controller expects.
func (c *vCenter) RetrieveProperties(ctx *simulator.Context, req *types.RetrieveProperties) soap.HasFault {
	return &methods.RetrievePropertiesBody{Fault_: notFound(*missing(ctx, &simulator.Method{Body: req}))}
}

// RetrievePropertiesEx does the same.
func (c *vCenter) RetrievePropertiesEx(ctx *simulator.Context, req *types.RetrievePropertiesEx) soap.HasFault {
	return &methods.RetrievePropertiesExBody{Fault_: notFound(*missing(ctx, &simulator.Method{Body: req}))}
}

func notFound(ref types.ManagedObjectReference) *soap.Fault {
	text := "The object 'vim." + ref.Type + ":" + ref.Value + "' has already been deleted or has not been completely created"
	return simulator.Fault(text, &types.ManagedObjectNotFound{Obj: ref})
}

// failed returns a task that has already failed, with the message that the user of a real vCenter sees.
func failed(ctx *simulator.Context, entity mo.Reference, name, message string, fault types.BaseMethodFault) types.ManagedObjectReference {
	return task(ctx, entity, name, types.TaskInfoStateError, &types.LocalizedMethodFault{Fault: fault, LocalizedMessage: message})
}

func task(ctx *simulator.Context, entity mo.Reference, name string, state types.TaskInfoState, failure *types.LocalizedMethodFault) types.ManagedObjectReference {
	one := simulator.CreateTask(entity, name, nil)
	ctx.Map.Put(one)
	now := time.Now()
	one.Info.Task, one.Info.Key, one.Info.StartTime = one.Self, one.Self.Value, &now
	one.Info.State, one.Info.Error = state, failure
	if failure != nil {
		one.Info.CompleteTime = &now
	}
	return one.Self
}

// hung returns a task of the object that never ends, if the fault task-hangs names this method.
func (c *vCenter) hung(ctx *simulator.Context, ref types.ManagedObjectReference, name string) *types.ManagedObjectReference {
	if value, set := c.fault(taskHangs); !set || value != name {
		return nil
	}
	one := task(ctx, ctx.Map.Get(ref), strings.TrimSuffix(name, "_Task"), types.TaskInfoStateRunning, nil)
	return &one
}

func machineOf(ctx *simulator.Context, ref types.ManagedObjectReference) *simulator.VirtualMachine {
	vm, _ := ctx.Map.Get(ref).(*simulator.VirtualMachine)
	return vm
}

// detached returns a context whose locks are not those of the call, for work that waits for other objects.
func detached(ctx *simulator.Context) *simulator.Context {
	return &simulator.Context{Context: ctx.Context, Session: ctx.Session, Map: ctx.Map}
}

// clusterHosts returns the GPU hosts in the cluster of a host.
func (c *vCenter) clusterHosts(ctx *simulator.Context, host types.ManagedObjectReference) []*gpuHost {
	system, ok := ctx.Map.Get(host).(*simulator.HostSystem)
	if !ok || system.Parent == nil {
		return nil
	}
	cluster, ok := ctx.Map.Get(*system.Parent).(*simulator.ClusterComputeResource)
	if !ok {
		return nil
	}
	return c.hostsOf(cluster)
}

func (c *vCenter) hostsOf(cluster *simulator.ClusterComputeResource) []*gpuHost {
	var found []*gpuHost
	for _, ref := range cluster.Host {
		if one := c.hosts[ref.Value]; one != nil {
			found = append(found, one)
		}
	}
	return found
}

// offers returns whether any of these hosts has the profile.
func offers(hosts []*gpuHost, profile string) bool {
	return slices.ContainsFunc(hosts, func(host *gpuHost) bool {
		_, known := host.known()[profile]
		return known
	})
}

func setConnection(ctx *simulator.Context, system *simulator.HostSystem, state types.HostSystemConnectionState) {
	ctx.Map.AtomicUpdate(ctx, system, []types.PropertyChange{
		{Name: "runtime.connectionState", Val: state}, {Name: "summary.runtime.connectionState", Val: state}})
}
