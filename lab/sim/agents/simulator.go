// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"lab.invalid/sim/rules"
)

// Options of the simulator.
type Options struct {
	// Scale is the factor for all durations of the real kubelet and agents.
	Scale float64
	// Lag is the delay until a mounted ConfigMap is updated, before scaling.
	Lag time.Duration
	// MIGWait is how long a MIG manager waits for the pods of an operand to terminate; it is not scaled.
	MIGWait time.Duration
	// NodeStatusPeriod is how often the kubelet writes the node's status, before scaling; 0 means at once.
	NodeStatusPeriod time.Duration
	PodLogs          string
	// Containers is the folder for the containers of driver pods in which commands can be executed.
	Containers string
	Workers    int
}

// Simulator simulates the agents of all nodes.
type Simulator struct {
	options  Options
	core     kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
	queue    workqueue.TypedRateLimitingInterface[string]

	nodes, pods, configMaps cache.SharedIndexInformer

	mutex           sync.Mutex
	memories        map[string]*memory
	histories       map[string]*rules.ConfigMapHistory
	present         map[string]bool
	refreshed       map[string]time.Time
	migConfigEvents map[string]bool
	logs            *podLogs
	driverPods      *driverPods
}

const (
	byNode      = "node"
	byConfigMap = "configmap"
)

// New creates a simulator; Run starts it.
func New(config *rest.Config, options Options) (*Simulator, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the number of workers is the limit
	config.UserAgent = "accel-gpu-lab-sim"
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	s := &Simulator{options: options, core: core, dynamic: dyn, metadata: meta, memories: map[string]*memory{}, histories: map[string]*rules.ConfigMapHistory{},
		present: map[string]bool{}, refreshed: map[string]time.Time{}, migConfigEvents: map[string]bool{}, logs: newPodLogs(options.PodLogs, dyn), driverPods: &driverPods{dir: options.Containers, client: dyn}}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 2*time.Second)
	s.queue = workqueue.NewTypedRateLimitingQueue(limiter)
	return s, s.watch()
}

func (s *Simulator) watch() error {
	client := s.core.CoreV1().RESTClient()
	assigned := fields.OneTermNotEqualSelector("spec.nodeName", "")
	s.nodes = cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client, "nodes", "", fields.Everything()), &corev1.Node{}, 0, cache.Indexers{})
	s.pods = cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client, "pods", "", assigned), &corev1.Pod{}, 0, cache.Indexers{
		byNode: func(object any) ([]string, error) { return []string{object.(*Pod).Node}, nil },
		byConfigMap: func(object any) ([]string, error) {
			if name := object.(*Pod).ConfigMap; name != "" {
				return []string{name}, nil
			}
			return nil, nil
		},
	})
	s.configMaps = cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client, "configmaps", "", fields.OneTermNotEqualSelector("metadata.name", "kube-root-ca.crt")),
		&corev1.ConfigMap{}, 0, cache.Indexers{})
	for informer, wiring := range map[cache.SharedIndexInformer]struct {
		trim   cache.TransformFunc
		handle cache.ResourceEventHandlerFuncs
	}{
		s.nodes:      {trimNode, cache.ResourceEventHandlerFuncs{AddFunc: s.onNode, UpdateFunc: s.onNodeUpdate, DeleteFunc: s.onNode}},
		s.pods:       {trimPod, cache.ResourceEventHandlerFuncs{AddFunc: s.onPod, UpdateFunc: s.onPodUpdate, DeleteFunc: s.onPodDelete}},
		s.configMaps: {trimConfigMap, cache.ResourceEventHandlerFuncs{AddFunc: s.onConfigMap, UpdateFunc: s.onConfigMapUpdate, DeleteFunc: s.onConfigMapDelete}},
	} {
		if err := informer.SetTransform(wiring.trim); err != nil {
			return err
		}
		if _, err := informer.AddEventHandler(wiring.handle); err != nil {
			return err
		}
	}
	return nil
}

// Run simulates the agents until the context ends; it calls synced when the informer caches are synced.
func (s *Simulator) Run(ctx context.Context, synced func()) error {
	defer s.queue.ShutDown()
	for _, informer := range []cache.SharedIndexInformer{s.configMaps, s.nodes, s.pods} {
		go informer.Run(ctx.Done())
	}
	if !cache.WaitForCacheSync(ctx.Done(), s.configMaps.HasSynced, s.nodes.HasSynced, s.pods.HasSynced) {
		return fmt.Errorf("the informer caches did not sync: %w", ctx.Err())
	}
	s.logs.sweep(s.pods.GetStore().List())
	s.driverPods.sweep(s.pods.GetStore().List())
	klog.InfoS("simulating", "nodes", len(s.nodes.GetStore().ListKeys()), "pods", len(s.pods.GetStore().ListKeys()))
	synced()
	go s.watchFeatures(ctx)
	go s.watchContainers(ctx)
	var workers sync.WaitGroup
	for range s.options.Workers {
		workers.Go(func() {
			for s.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	s.queue.ShutDown()
	workers.Wait()
	return nil
}

func (s *Simulator) next(ctx context.Context) bool {
	name, down := s.queue.Get()
	if down {
		return false
	}
	defer s.queue.Done(name)
	again, err := s.reconcile(ctx, name)
	if err != nil && ctx.Err() == nil {
		klog.ErrorS(err, "reconciliation failed, retrying", "node", name)
		s.queue.AddRateLimited(name)
		return true
	}
	s.queue.Forget(name)
	if again > 0 {
		s.queue.AddAfter(name, again)
	}
	return true
}

func (s *Simulator) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * s.options.Scale)
}

func (s *Simulator) lag() time.Duration {
	return s.scaled(s.options.Lag)
}

// memoryOf returns the state of one node; the queue passes a node to one worker at a time. A new machine with the name of
// a former one gets a new state.
func (s *Simulator) memoryOf(node *Node) *memory {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	m := s.memories[node.Name]
	if m == nil || m.uid != node.UID {
		m = newMemory(node.UID)
		s.memories[node.Name] = m
	}
	return m
}

func (s *Simulator) forget(node string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.memories, node)
	delete(s.migConfigEvents, node)
}

// addMIGConfigEvent records that the MIG config label was set: an idle MIG manager acts on it even if the value is unchanged.
func (s *Simulator) addMIGConfigEvent(node string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.migConfigEvents[node] = true
}

// takeMIGConfigEvent returns whether the MIG config label was set, and clears the record.
func (s *Simulator) takeMIGConfigEvent(node string) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	was := s.migConfigEvents[node]
	delete(s.migConfigEvents, node)
	return was
}
