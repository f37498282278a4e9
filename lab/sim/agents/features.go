// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"lab.invalid/sim/rules"
)

const nodeNameLabel = "nfd.node.kubernetes.io/node-name"

var nodeFeatures = schema.GroupVersionResource{Group: "nfd.k8s-sigs.io", Version: "v1alpha1", Resource: "nodefeatures"}

// publishWorkerFeatures is nfd-worker: it publishes one NodeFeature with the name of the node.
func (r *reconciliation) publishWorkerFeatures(pod *Pod) error {
	if !pod.Running() || r.node.Faults.Has(rules.NFDStalled) {
		return nil
	}
	copied, _ := r.mounted(pod)
	pci, err := rules.WorkerConfig(copied["nfd-worker.conf"])
	if err != nil {
		klog.ErrorS(err, "cannot parse nfd-worker.conf", "pod", klog.KObj(pod))
		return nil
	}
	custom, err := rules.WorkerRules(copied["nfd-worker.conf"])
	if err != nil {
		klog.ErrorS(err, "ignoring invalid rules in nfd-worker.conf", "pod", klog.KObj(pod))
	}
	spec := rules.NodeFeatures(r.node.Name, r.node.Kernel, r.node.Hardware, r.node.OS, pci, custom)
	return r.publish(pod, r.node.Name, map[string]any{"nfd.node.kubernetes.io/worker.version": "v0.19.0"}, r.workerOwners(pod), spec)
}

// workerOwners evaluates the worker's -owner-refs flag.
func (r *reconciliation) workerOwners(pod *Pod) []any {
	sources := "pod,ds"
	for _, arg := range pod.Args {
		if value, found := strings.CutPrefix(strings.TrimLeft(arg, "-"), "owner-refs="); found {
			sources = value
		}
	}
	var owners []any
	for _, source := range strings.Split(sources, ",") {
		switch strings.TrimSpace(source) {
		case "pod":
			owners = append(owners, podOwner(pod))
		case "ds":
			if owner := daemonSetOwner(pod); owner != nil {
				owners = append(owners, owner)
			}
		case "node":
			owners = append(owners, object{"apiVersion": "v1", "kind": "Node", "name": r.node.Name, "uid": string(r.node.UID)})
		}
	}
	return owners
}

func podOwner(pod *Pod) object {
	return object{"apiVersion": "v1", "kind": "Pod", "name": pod.Name, "uid": string(pod.UID)}
}

func daemonSetOwner(pod *Pod) object {
	if pod.Owner.Kind != "DaemonSet" {
		return nil
	}
	return object{"apiVersion": pod.Owner.APIVersion, "kind": pod.Owner.Kind, "name": pod.Owner.Name, "uid": string(pod.Owner.UID)}
}

// publishGFDLabels is gpu-feature-discovery: it publishes labels through its own NodeFeature, with the time of the config.
func (r *reconciliation) publishGFDLabels(pod *Pod, a *agent) error {
	if r.node.Hardware == nil || r.node.Faults.Has(rules.GFDStalled) {
		return nil
	}
	labels := map[string]any{"nvidia.com/gfd.timestamp": strconv.FormatInt(a.At, 10)}
	for key, value := range a.labels {
		labels[key] = value
	}
	var owners []any
	if owner := daemonSetOwner(pod); owner != nil {
		owners = append(owners, owner)
	}
	owners = append(owners, podOwner(pod))
	features := object{"flags": object{}, "attributes": object{}, "instances": object{}}
	return r.publish(pod, "nvidia-features-for-"+r.node.Name, nil, owners, object{"features": features, "labels": labels})
}

// publish writes a NodeFeature of this node if it changed, and remembers its hash.
func (r *reconciliation) publish(pod *Pod, name string, annotations object, owners []any, spec map[string]any) error {
	metadata := object{"name": name, "namespace": pod.Namespace, "labels": object{nodeNameLabel: r.node.Name}}
	if len(owners) > 0 {
		metadata["ownerReferences"] = owners
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	wanted := &unstructured.Unstructured{Object: object{"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature", "metadata": metadata, "spec": spec}}
	text, err := json.Marshal(wanted.Object)
	if err != nil {
		return err
	}
	key, sum := pod.Namespace+"/"+name, fmt.Sprintf("%x", sha256.Sum256(text))
	if r.published(key) == sum {
		return nil
	}
	client := r.dynamic.Resource(nodeFeatures).Namespace(pod.Namespace)
	live, err := client.Get(r.ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = client.Create(r.ctx, wanted, metav1.CreateOptions{})
	case err == nil && !sameFeature(live, wanted):
		wanted.SetResourceVersion(live.GetResourceVersion())
		_, err = client.Update(r.ctx, wanted, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("NodeFeature %s: %w", key, err)
	}
	r.setPublished(key, sum)
	return nil
}

func sameFeature(live, wanted *unstructured.Unstructured) bool {
	return equality.Semantic.DeepEqual(live.Object["spec"], wanted.Object["spec"]) && equality.Semantic.DeepEqual(live.GetOwnerReferences(), wanted.GetOwnerReferences()) &&
		equality.Semantic.DeepEqual(live.GetLabels(), wanted.GetLabels())
}

func (r *reconciliation) published(key string) string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.memory.published[key]
}

func (r *reconciliation) setPublished(key, sum string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.memory.published[key] = sum
}

// watchFeatures makes the agents recreate deleted NodeFeatures. The CRD is installed and deleted with NFD's chart.
func (s *Simulator) watchFeatures(ctx context.Context) {
	for !s.served() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(2 * time.Second):
		}
	}
	informer := metadatainformer.NewSharedInformerFactory(s.metadata, 0).ForResource(nodeFeatures).Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: s.onFeatureDelete})
	if err != nil {
		klog.ErrorS(err, "cannot watch NodeFeatures")
		return
	}
	informer.Run(ctx.Done())
}

func (s *Simulator) served() bool {
	_, err := s.core.Discovery().ServerResourcesForGroupVersion(nodeFeatures.GroupVersion().String())
	return err == nil
}

func (s *Simulator) onFeatureDelete(gone any) {
	if unknown, deleted := gone.(cache.DeletedFinalStateUnknown); deleted {
		gone = unknown.Obj
	}
	feature, isMeta := gone.(metav1.Object)
	if !isMeta {
		return
	}
	node := feature.GetLabels()[nodeNameLabel]
	s.mutex.Lock()
	if m := s.memories[node]; m != nil {
		delete(m.published, feature.GetNamespace()+"/"+feature.GetName())
	}
	s.mutex.Unlock()
	s.queue.Add(node)
}
