// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Package machines simulates OpenShift's Machine API and its autoscaler: MachineSets become Machines, Machines become nodes.
//
// Sources: openshift/machine-api-operator, pkg/controller/machine (phases, conditions, drain), pkg/controller/machineset
// (replicas, status, delete policy), pkg/controller/nodelink (labels, taints and annotations of nodes), and the MachineSet
// controllers of the providers (capacity annotations): openshift/machine-api-provider-aws and others, pkg/actuators/machineset.
package machines

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"lab.invalid/sim/autoscaler"
	"lab.invalid/sim/machineapi"
)

// Options of the simulator.
type Options struct {
	// Scale is the factor for all durations.
	Scale float64
	Cloud *Cloud
	// Rules are those of the autoscaler's release.
	Rules autoscaler.Rules
	// Settings is the file with the faults and settings of the lab's clouds.
	Settings string
	// VirtualMachines is the file with the virtual machines of a simulated vCenter. With it, OpenShift's own controllers create Machines and
	// VMs, and the simulator only makes nodes of the VMs and runs the autoscaler.
	VirtualMachines string
	// Workers is the number of machines that are reconciled in parallel.
	Workers int
}

// Simulator simulates the controllers of the Machine API.
type Simulator struct {
	options Options
	core    kubernetes.Interface
	dynamic dynamic.Interface
	events  *events

	sets, machines, scalers, cluster, nodes, pods, configMaps cache.SharedIndexInformer

	changed chan struct{}
	// expected contains names of Machines that were created or deleted, until the cache shows it.
	mutex    sync.Mutex
	expected map[string]map[string]bool
	// rejected is when the API server rejected the labels of a Machine.
	rejected map[types.UID]time.Time
	scaler   *scaler
	vcenter  *vCenter
}

// New creates a simulator; Run starts it.
func New(config *rest.Config, options Options) (*Simulator, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the number of workers is the limit
	config.UserAgent = "accel-gpu-lab-machines"
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	s := &Simulator{options: options, core: core, dynamic: dyn, events: newEvents(core), changed: make(chan struct{}, 1), expected: map[string]map[string]bool{},
		rejected: map[types.UID]time.Time{}}
	s.scaler, s.vcenter = newScaler(s), newVCenter(options.VirtualMachines)
	return s, s.watch()
}

func (s *Simulator) watch() error {
	for informer, source := range map[*cache.SharedIndexInformer]struct {
		resource schema.GroupVersionResource
		make     func() any
	}{
		&s.sets:     {machineapi.MachineSets, func() any { return &machineapi.MachineSet{} }},
		&s.machines: {machineapi.Machines, func() any { return &machineapi.Machine{} }},
		&s.scalers:  {machineapi.MachineAutoscalers, func() any { return &machineapi.MachineAutoscaler{} }},
		&s.cluster:  {machineapi.ClusterAutoscalers, func() any { return &machineapi.ClusterAutoscaler{} }},
	} {
		*informer = s.informer(source.resource)
		if err := (*informer).SetTransform(decode(source.make)); err != nil {
			return err
		}
	}
	client := s.core.CoreV1().RESTClient()
	s.nodes = cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client, "nodes", "", fields.Everything()), &corev1.Node{}, 0, cache.Indexers{})
	s.pods = cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client, "pods", "", fields.Everything()), &corev1.Pod{}, 0, cache.Indexers{byNode: podNode})
	s.configMaps = cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client, "configmaps", machineapi.Namespace, fields.OneTermEqualSelector("metadata.name", prioritiesName)),
		&corev1.ConfigMap{}, 0, cache.Indexers{})
	for _, informer := range []cache.SharedIndexInformer{s.sets, s.machines, s.scalers, s.nodes} {
		notify := func(any) { s.notify() }
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: notify, UpdateFunc: func(_, _ any) { s.notify() }, DeleteFunc: notify}); err != nil {
			return err
		}
	}
	return nil
}

const byNode = "node"

func podNode(object any) ([]string, error) {
	return []string{object.(*corev1.Pod).Spec.NodeName}, nil
}

func (s *Simulator) informer(resource schema.GroupVersionResource) cache.SharedIndexInformer {
	client := s.dynamic.Resource(resource)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, options)
		},
	}
	return cache.NewSharedIndexInformer(source, &unstructured.Unstructured{}, 0, cache.Indexers{})
}

func decode(make func() any) cache.TransformFunc {
	return func(object any) (any, error) {
		found, isUnstructured := object.(*unstructured.Unstructured)
		if !isUnstructured {
			return object, nil
		}
		typed := make()
		return typed, runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, typed)
	}
}

func (s *Simulator) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// period is the longest time between two reconciliations, which also follow each change.
const period = 250 * time.Millisecond

// Run simulates until the context ends; it calls synced when the informer caches are synced.
func (s *Simulator) Run(ctx context.Context, synced func()) error {
	informers := []cache.SharedIndexInformer{s.sets, s.machines, s.scalers, s.cluster, s.nodes, s.pods, s.configMaps}
	var waiting []cache.InformerSynced
	for _, informer := range informers {
		go informer.Run(ctx.Done())
		waiting = append(waiting, informer.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), waiting...) {
		return fmt.Errorf("the informer caches did not sync: %w", ctx.Err())
	}
	klog.InfoS("simulating", "machinesets", len(s.sets.GetStore().ListKeys()), "machines", len(s.machines.GetStore().ListKeys()))
	synced()
	go s.scaler.run(ctx)
	timer := time.NewTicker(period)
	defer timer.Stop()
	for {
		s.reconcile(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-s.changed:
		}
	}
}

// reconcile reconciles all objects once; errors are logged, and the next reconciliation retries.
func (s *Simulator) reconcile(ctx context.Context) {
	settings := loadSettings(s.options.Settings)
	if _, stopped := settings.fault(paused, ""); stopped {
		return
	}
	for _, object := range s.scalers.GetStore().List() {
		s.report(ctx, s.reconcileScaler(ctx, object.(*machineapi.MachineAutoscaler)))
	}
	if s.options.VirtualMachines != "" {
		s.report(ctx, s.reconcileVirtualMachines(ctx, settings))
		return
	}
	work := make(chan *machineapi.Machine)
	var workers sync.WaitGroup
	for range s.options.Workers {
		workers.Go(func() {
			for machine := range work {
				s.report(ctx, s.reconcileMachine(ctx, machine, settings))
			}
		})
	}
	for _, object := range s.machines.GetStore().List() {
		work <- object.(*machineapi.Machine)
	}
	close(work)
	workers.Wait()
	for _, object := range s.sets.GetStore().List() {
		s.report(ctx, s.reconcileSet(ctx, object.(*machineapi.MachineSet)))
	}
}

func (s *Simulator) report(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		klog.ErrorS(err, "reconciliation failed, retrying")
	}
}

func (s *Simulator) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * s.options.Scale)
}
