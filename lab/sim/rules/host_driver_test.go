// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"slices"
	"testing"
)

func TestServicesOfTheHost(t *testing.T) {
	clients, err := GPUClients("version: v1\nsystemd-services:\n  - nvsm.service\n  - nvidia-dcgm.service\n")
	if err != nil || !slices.Equal(clients, []string{"nvsm.service", "nvidia-dcgm.service"}) {
		t.Errorf("parsed %v, %v", clients, err)
	}
	for services, remaining := range map[string][]string{
		"":                                 nil,
		"nvsm.service":                     nil,
		"nvsm.service,gdm.service":         {"gdm.service"},
		"gdm.service,xorg.service":         {"gdm.service", "xorg.service"},
		"nvidia-dcgm.service,nvsm.service": nil,
	} {
		if found := (OS{Services: services}).RemainingServices(clients); !slices.Equal(found, remaining) {
			t.Errorf("%s: %v", services, found)
		}
	}
	if _, err := GPUClients(": ["); err == nil {
		t.Error("invalid YAML is accepted")
	}
}
