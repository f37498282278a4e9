// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package machines

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// events records events of objects; a repeated event is recorded once.
type events struct {
	core  kubernetes.Interface
	mutex sync.Mutex
	last  map[string]string
}

func newEvents(core kubernetes.Interface) *events {
	return &events{core: core, last: map[string]string{}}
}

// record creates an event, unless it is the last one with this reason about this object.
func (e *events) record(ctx context.Context, of corev1.ObjectReference, component, kind, reason, message string) {
	key := string(of.UID) + "/" + reason
	e.mutex.Lock()
	same := e.last[key] == message
	e.last[key] = message
	e.mutex.Unlock()
	if same {
		return
	}
	namespace := of.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", of.Name, time.Now().UnixNano()), Namespace: namespace},
		InvolvedObject: of, Reason: reason, Message: message, Type: kind, Count: 1,
		FirstTimestamp: now, LastTimestamp: now, Source: corev1.EventSource{Component: component},
	}
	if _, err := e.core.CoreV1().Events(namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil && ctx.Err() == nil {
		klog.ErrorS(err, "cannot record an event", "reason", reason, "object", of.Name)
	}
}
