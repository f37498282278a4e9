// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import "testing"

func TestTheImageDeterminesTheBehaviour(t *testing.T) {
	for _, test := range []struct {
		image     string
		behaviour Behaviour
		does      bool
	}{
		{"nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.12.2-ubuntu20.04", GeneratesMIGConfig, false},
		{"nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.13.1", GeneratesMIGConfig, false},
		{"nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.14.0", GeneratesMIGConfig, true},
		{"mirror.example:5000/k8s-mig-manager:v0.14.5", PausesClientsForMIG, false},
		{"mirror.example:5000/k8s-mig-manager:v0.15.0", PausesClientsForMIG, true},
		{"mirror.example:5000/k8s-mig-manager:v1.0.0", PausesClientsForMIG, true},
		{"mirror.example:5000/k8s-mig-manager", GeneratesMIGConfig, false},
		{"k8s-mig-manager@sha256:0123", GeneratesMIGConfig, false},
		{"k8s-driver-manager:v0.8.0", KeepsEqualDriver, false},
		{"k8s-driver-manager:v0.9.1", KeepsEqualDriver, false},
		{"k8s-driver-manager:v0.10.0", KeepsEqualDriver, true},
		{"k8s-driver-manager:v0.11.0", PausesClientsForDriver, false},
		{"k8s-driver-manager:v0.12.0", PausesClientsForDriver, true},
		{"", KeepsEqualDriver, false},
	} {
		if got := Does(test.image, test.behaviour); got != test.does {
			t.Errorf("%s %s: %v", test.image, test.behaviour, got)
		}
	}
}

func TestEveryBehaviourHasASource(t *testing.T) {
	for behaviour, row := range releases {
		if row.since == "" || row.operator == "" || row.source == "" || row.of.name == "" || imageRelease.FindString(row.of.release) == "" {
			t.Errorf("%s: %+v", behaviour, row)
		}
	}
}
