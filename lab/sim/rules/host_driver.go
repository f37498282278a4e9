// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// GPUClientsKey is the key in the ConfigMap of the MIG manager's gpu-clients.
const GPUClientsKey = "clients.yaml"

// GPUClients parses the services that the MIG manager stops on a host with its own driver (mig-parted cmd/nvidia-mig-manager,
// parseGPUClientsFile).
func GPUClients(text string) ([]string, error) {
	clients := struct {
		Services []string `json:"systemd-services"`
	}{}
	err := yaml.Unmarshal([]byte(text), &clients)
	return clients.Services, err
}

// RemainingServices returns the services of the host that hold GPUs although the MIG manager has stopped these clients.
func (o OS) RemainingServices(clients []string) []string {
	services := strings.FieldsFunc(o.Services, func(c rune) bool { return c == ',' })
	return slices.DeleteFunc(services, func(service string) bool { return slices.Contains(clients, service) })
}
