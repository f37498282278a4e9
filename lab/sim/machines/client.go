// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package machines

import (
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"lab.invalid/sim/machineapi"
)

type object = map[string]any

// patch sends a merge patch for an object of the Machine API; a missing object is not an error.
func (s *Simulator) patch(ctx context.Context, resource schema.GroupVersionResource, name string, body object, subresources ...string) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	_, err = s.dynamic.Resource(resource).Namespace(machineapi.Namespace).Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{}, subresources...)
	return ignoreGone(err)
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// plain converts a typed value to the maps and lists of JSON.
func plain(value any) (any, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var found any
	return found, json.Unmarshal(data, &found)
}
