// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"encoding/json"
	"strings"
	"testing"
)

const scaleQueryText = `{"release": "RELEASE",
	"machine_sets": [{"metadata": {"name": "gpu", "annotations": {
		"machine.openshift.io/vCPU": "8", "machine.openshift.io/memoryMb": "32768", "machine.openshift.io/GPU": "1"}},
		"spec": {"replicas": 0, "selector": {}, "template": {"spec": {"metadata": {"labels": {"pool": "gpu"}}, "providerSpec": {}}}}}],
	"machine_autoscalers": [{"metadata": {"name": "gpu", "namespace": "openshift-machine-api"},
		"spec": {"minReplicas": 0, "maxReplicas": 2, "scaleTargetRef": {"kind": "MachineSet", "name": "gpu"}}}],
	"cluster_autoscaler": {"metadata": {"name": "default"}, "spec": {}},
	"pod": {"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeSelector": {"pool": "POOL"},
		"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]}}}`

func TestAutoscaleAnswers(t *testing.T) {
	for _, test := range []struct {
		release, pool string
		scales        bool
		reason        string
	}{
		{"4.18", "gpu", true, ""},
		{"4.20", "gpu", true, ""},
		{"4.18", "other", false, "node affinity"},
		{"5.0", "gpu", false, "node affinity"}, // the labels of the template are not read
		{"4.1", "gpu", false, ""},
	} {
		text := strings.NewReplacer("RELEASE", test.release, "POOL", test.pool).Replace(scaleQueryText)
		query := scaleQuery{}
		if err := json.Unmarshal([]byte(text), &query); err != nil {
			t.Fatal(err)
		}
		found := answer(&query)
		if found.Scales != test.scales || (test.scales && (found.MachineSet != "gpu" || found.Replicas != 1)) || !strings.Contains(found.Reasons["gpu"], test.reason) ||
			(found.Problem != "") != (test.release == "4.1") {
			t.Errorf("%s, %s: %+v", test.release, test.pool, found)
		}
	}
}
