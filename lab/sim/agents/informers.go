// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"lab.invalid/sim/rules"
)

func (s *Simulator) onNode(object any) {
	if unknown, deleted := object.(cache.DeletedFinalStateUnknown); deleted {
		object = unknown.Obj
	}
	if node, isNode := object.(*Node); isNode {
		s.queue.Add(node.Name)
	}
}

// onNodeUpdate ignores heartbeats.
func (s *Simulator) onNodeUpdate(before, after any) {
	a, b := before.(*Node), after.(*Node)
	if a.MIGConfig != b.MIGConfig && b.MIGConfig != "" {
		s.addMIGConfigEvent(b.Name)
	}
	same := a.UID == b.UID && a.Config == b.Config && a.Kernel == b.Kernel && a.Ready == b.Ready && a.OS == b.OS && maps.Equal(a.Faults, b.Faults) &&
		maps.Equal(a.Capacity, b.Capacity) && maps.Equal(a.Allocatable, b.Allocatable) && a.Hardware == b.Hardware && a.MIGConfig == b.MIGConfig &&
		a.Layout.Equal(b.Layout) && a.BootID == b.BootID && a.RebootRequest == b.RebootRequest && a.Rebooting.Equal(b.Rebooting)
	if !same {
		s.queue.Add(b.Name)
	}
}

func (s *Simulator) onPod(object any) {
	pod := object.(*Pod)
	if pod.Operand != "" && pod.Operand != validator {
		s.refresh(pod, pod.CreationTimestamp.Time)
	}
	s.queue.Add(pod.Node)
}

func (s *Simulator) onPodUpdate(before, after any) {
	a, b := before.(*Pod), after.(*Pod)
	if a.UID != b.UID {
		s.gone(a)
		s.onPod(b)
		return
	}
	if a.AnnotationsHash != b.AnnotationsHash {
		s.refresh(b, time.Now())
	}
	s.queue.Add(b.Node)
}

func (s *Simulator) onPodDelete(object any) {
	if unknown, deleted := object.(cache.DeletedFinalStateUnknown); deleted {
		object = unknown.Obj
	}
	if pod, isPod := object.(*Pod); isPod {
		s.gone(pod)
		s.queue.Add(pod.Node)
	}
}

func (s *Simulator) gone(pod *Pod) {
	s.mutex.Lock()
	delete(s.refreshed, string(pod.UID))
	s.mutex.Unlock()
	s.logs.remove(pod)
	s.driverPods.remove(pod)
}

// refresh records that the kubelet has updated the volumes of this pod.
func (s *Simulator) refresh(pod *Pod, at time.Time) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.refreshed[string(pod.UID)] = at
}

// remountVolumes records that a pod starts now, which mounts its volumes.
func (s *Simulator) remountVolumes(pod *Pod) {
	s.refresh(pod, time.Now())
}

func (s *Simulator) onConfigMap(object any) {
	s.observe(object.(*corev1.ConfigMap), true)
}

func (s *Simulator) onConfigMapUpdate(_, after any) {
	s.observe(after.(*corev1.ConfigMap), true)
}

func (s *Simulator) onConfigMapDelete(object any) {
	if unknown, deleted := object.(cache.DeletedFinalStateUnknown); deleted {
		object = unknown.Obj
	}
	if configMap, isConfigMap := object.(*corev1.ConfigMap); isConfigMap {
		s.observe(configMap, false)
	}
}

// observe stores the versions of a ConfigMap and enqueues its readers, now and when their copies are updated.
func (s *Simulator) observe(configMap *corev1.ConfigMap, present bool) {
	name := configMap.Namespace + "/" + configMap.Name
	s.mutex.Lock()
	history := s.histories[name]
	if history == nil {
		history = &rules.ConfigMapHistory{}
		s.histories[name] = history
	}
	s.present[name] = present
	if present {
		history.Observe(configMap.Data, time.Now(), s.lag())
	}
	s.mutex.Unlock()
	readers, err := s.pods.GetIndexer().ByIndex(byConfigMap, name)
	if err != nil {
		return
	}
	for _, reader := range readers {
		s.queue.Add(reader.(*Pod).Node)
		s.queue.AddAfter(reader.(*Pod).Node, s.lag()+10*time.Millisecond)
	}
}

// mounted returns the copy of the ConfigMap that a pod has mounted, or nil.
func (s *Simulator) mounted(pod *Pod) (map[string]string, bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	history := s.histories[pod.ConfigMap]
	if history == nil {
		return nil, false
	}
	return history.View(time.Now(), s.lag(), s.refreshed[string(pod.UID)]), s.present[pod.ConfigMap]
}
