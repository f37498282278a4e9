// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"lab.invalid/sim/driverpod"
)

var kwokExecs = schema.GroupVersionResource{Group: "kwok.x-k8s.io", Version: "v1alpha1", Resource: "execs"}

// sandboxFolder is the folder of the containers in kwok's sandbox, in which the commands are executed.
const sandboxFolder = "/containers"

const containerPoll = 100 * time.Millisecond

// driverPods are the folders of the driver pods' containers, and the Exec objects with which kwok executes commands in them.
type driverPods struct {
	dir    string
	client dynamic.Interface
}

// enabled returns whether the lab has a folder for containers.
func (d *driverPods) enabled() bool {
	return d != nil && d.dir != ""
}

func podFolder(pod *Pod) string {
	return strings.Join([]string{pod.Namespace, pod.Name, string(pod.UID)}, "_")
}

func (d *driverPods) folder(pod *Pod) driverpod.Folder {
	return driverpod.Folder(filepath.Join(d.dir, podFolder(pod)))
}

// announce creates the Exec object, which is owned by the pod.
func (d *driverPods) announce(ctx context.Context, pod *Pod) error {
	target := object{"containers": []any{driver}, "local": object{"envs": []any{object{"name": driverpod.EnvFolder, "value": path.Join(sandboxFolder, podFolder(pod))}}}}
	wanted := &unstructured.Unstructured{Object: object{"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Exec", "metadata": object{
		"name": pod.Name, "namespace": pod.Namespace, "ownerReferences": []any{podOwner(pod)}}, "spec": object{"execs": []any{target}}}}
	if _, err := applyKwokObject(ctx, d.client, kwokExecs, wanted); err != nil {
		return fmt.Errorf("exec of %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// withdraw deletes the Exec object of a container that is not running.
func (d *driverPods) withdraw(ctx context.Context, pod *Pod) error {
	err := d.client.Resource(kwokExecs).Namespace(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// remove deletes the folder of a deleted pod.
func (d *driverPods) remove(pod *Pod) {
	if !d.enabled() || pod.Operand != driver {
		return
	}
	if err := os.RemoveAll(string(d.folder(pod))); err != nil {
		klog.ErrorS(err, "cannot delete the container", "pod", klog.KObj(pod))
	}
}

// sweep deletes the folders of pods that were deleted while the simulator was not running.
func (d *driverPods) sweep(pods []any) {
	if !d.enabled() {
		return
	}
	alive := map[string]bool{driverpod.EventsFolder: true}
	for _, pod := range pods {
		alive[podFolder(pod.(*Pod))] = true
	}
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if alive[entry.Name()] {
			continue
		}
		if err := os.RemoveAll(filepath.Join(d.dir, entry.Name())); err != nil {
			klog.ErrorS(err, "cannot delete the container", "folder", entry.Name())
		}
	}
}

// changes returns the pods (namespace/name) whose containers commands have changed since the last call.
func (d *driverPods) changes() []string {
	folder := filepath.Join(d.dir, driverpod.EventsFolder)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}
	var changed []string
	for _, entry := range entries {
		// Removed first: a later change creates it again.
		if err := os.Remove(filepath.Join(folder, entry.Name())); err != nil {
			continue
		}
		if parts := strings.Split(entry.Name(), "_"); len(parts) == 3 {
			changed = append(changed, parts[0]+"/"+parts[1])
		}
	}
	return changed
}

// watchContainers enqueues the nodes on which commands have changed a container.
func (s *Simulator) watchContainers(ctx context.Context) {
	if !s.driverPods.enabled() {
		return
	}
	ticker := time.NewTicker(containerPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, name := range s.driverPods.changes() {
			if pod, exists, err := s.pods.GetStore().GetByKey(name); err == nil && exists {
				s.queue.Add(pod.(*Pod).Node)
			}
		}
	}
}
