// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
)

var kwokLogs = schema.GroupVersionResource{Group: "kwok.x-k8s.io", Version: "v1alpha1", Resource: "logs"}

// podLogs writes the logs of containers: one file each, in CRI format, and a Logs object with the paths for kwok.
type podLogs struct {
	dir    string
	client dynamic.Interface

	mutex   sync.Mutex
	written map[types.UID]*podLog
}

type podLog struct {
	object types.UID
	ended  map[string]time.Time
}

func newPodLogs(dir string, client dynamic.Interface) *podLogs {
	return &podLogs{dir: dir, client: client, written: map[types.UID]*podLog{}}
}

func (l *podLogs) folder(pod *Pod) string {
	return filepath.Join(l.dir, podFolder(pod))
}

// write creates the log files of a pod, with the output of each container.
func (l *podLogs) write(ctx context.Context, pod *Pod, lines map[string][]string) error {
	if l.dir == "" {
		return nil
	}
	folder := l.folder(pod)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, c := range append(slices.Clone(pod.Mains), pod.Inits...) {
		if _, written := lines[c.Name]; !written && !slices.ContainsFunc(pod.Mains, func(main container) bool { return main.Name == c.Name }) {
			continue // init containers of agents print nothing
		}
		if err := writeCRI(filepath.Join(folder, c.Name+".log"), lines[c.Name], time.Now()); err != nil {
			return err
		}
	}
	return l.announce(ctx, pod)
}

// writeCRI replaces a log file atomically.
func writeCRI(path string, lines []string, at time.Time) error {
	var text strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&text, "%s stdout F %s\n", at.UTC().Format(time.RFC3339Nano), line)
	}
	if err := os.WriteFile(path+".new", []byte(text.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// crashed writes the last log line of a container that exited with an error.
func (l *podLogs) crashed(pod *Pod, container, line string, ended time.Time) {
	if line != "" {
		l.replace(pod, container, []string{fmt.Sprintf("E%s       1 main.go:173] %s", ended.Format("0102 15:04:05.000000"), line)}, ended)
	}
}

// replace replaces the log of a container, unless the log was already written for the same time.
func (l *podLogs) replace(pod *Pod, container string, lines []string, at time.Time) {
	if l.dir == "" {
		return
	}
	l.mutex.Lock()
	known := l.written[pod.UID]
	l.mutex.Unlock()
	if known == nil {
		if err := l.write(context.Background(), pod, nil); err != nil {
			klog.ErrorS(err, "cannot write the log", "pod", klog.KObj(pod))
			return
		}
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if known = l.written[pod.UID]; known == nil || known.ended[container].Equal(at) {
		return
	}
	known.ended[container] = at
	if err := writeCRI(filepath.Join(l.folder(pod), container+".log"), lines, at); err != nil {
		klog.ErrorS(err, "cannot write the log", "pod", klog.KObj(pod))
	}
}

// announce creates the Logs object, which is owned by the pod and deleted with it.
func (l *podLogs) announce(ctx context.Context, pod *Pod) error {
	var files []any
	for _, c := range append(append([]container{}, pod.Mains...), pod.Inits...) {
		file := filepath.Join(l.folder(pod), c.Name+".log")
		files = append(files, object{"containers": []any{c.Name}, "logsFile": file, "previousLogsFile": file})
	}
	wanted := &unstructured.Unstructured{Object: object{"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Logs", "metadata": object{
		"name": pod.Name, "namespace": pod.Namespace, "ownerReferences": []any{podOwner(pod)}}, "spec": object{"logs": files}}}
	made, err := applyKwokObject(ctx, l.client, kwokLogs, wanted)
	if err != nil {
		return fmt.Errorf("logs of %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.written[pod.UID] = &podLog{object: made.GetUID(), ended: map[string]time.Time{}}
	return nil
}

// applyKwokObject creates or replaces an object that defines a response of kwok's kubelet API.
func applyKwokObject(ctx context.Context, client dynamic.Interface, kind schema.GroupVersionResource, wanted *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	objects := client.Resource(kind).Namespace(wanted.GetNamespace())
	made, err := objects.Create(ctx, wanted, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		var live *unstructured.Unstructured
		if live, err = objects.Get(ctx, wanted.GetName(), metav1.GetOptions{}); err == nil {
			wanted.SetResourceVersion(live.GetResourceVersion())
			made, err = objects.Update(ctx, wanted, metav1.UpdateOptions{})
		}
	}
	return made, err
}

// remove deletes the logs of a deleted pod.
func (l *podLogs) remove(pod *Pod) {
	l.mutex.Lock()
	known := l.written[pod.UID]
	delete(l.written, pod.UID)
	l.mutex.Unlock()
	if known == nil {
		return
	}
	if err := os.RemoveAll(l.folder(pod)); err != nil {
		klog.ErrorS(err, "cannot delete the log", "pod", klog.KObj(pod))
	}
	if known.object == "" {
		return
	}
	go func() {
		err := l.client.Resource(kwokLogs).Namespace(pod.Namespace).Delete(context.Background(), pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(known.object))})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			klog.ErrorS(err, "cannot delete the Logs object", "pod", klog.KObj(pod))
		}
	}()
}

// sweep deletes the logs of pods that were deleted while the simulator was not running, and registers those of the others.
func (l *podLogs) sweep(pods []any) {
	if l.dir == "" {
		return
	}
	folders := map[string]types.UID{}
	for _, pod := range pods {
		folders[filepath.Base(l.folder(pod.(*Pod)))] = pod.(*Pod).UID
	}
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue // not written by the simulator
		}
		if uid, alive := folders[entry.Name()]; alive {
			l.written[uid] = &podLog{ended: map[string]time.Time{}}
		} else if strings.Count(entry.Name(), "_") == 2 {
			if err := os.RemoveAll(filepath.Join(l.dir, entry.Name())); err != nil {
				klog.ErrorS(err, "cannot delete the log", "folder", entry.Name())
			}
		}
	}
}
