// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Behaviour is something that NVIDIA's agents do since a release.
type Behaviour string

// What differs by release; the table below has the releases and the sources.
const (
	// GeneratesMIGConfig: the MIG manager generates its configuration from the node's GPUs when it starts and has no custom
	// one, and publishes it as the ConfigMap <node>-mig-config.
	GeneratesMIGConfig Behaviour = "generates a MIG configuration"
	// PausesClientsForMIG: a MIG change pauses nvidia.com/gpu.deploy.client, and waits for the DaemonSets that select it.
	PausesClientsForMIG Behaviour = "pauses GPU clients for a MIG change"
	// PausesClientsForDriver: so does the driver manager before it unloads a driver.
	PausesClientsForDriver Behaviour = "pauses GPU clients for a driver"
	// KeepsEqualDriver: the driver manager does not unload a driver with an equal configuration, so that its users continue.
	KeepsEqualDriver Behaviour = "keeps a driver with equal configuration"
)

// image is an image of NVIDIA, and its release in the GPU operator v25.10.1.
type image struct{ name, release string }

var (
	migManagerImage    = image{"k8s-mig-manager", "v0.13.1"}
	driverManagerImage = image{"k8s-driver-manager", "v0.9.1"}
)

// releases has the first release of an image with each behaviour, the operator whose chart has it, and where to read it.
var releases = map[Behaviour]struct {
	of       image
	since    string
	operator string
	source   string
}{
	GeneratesMIGConfig:     {migManagerImage, "v0.14.0", "v26.3.0", "NVIDIA/mig-parted v0.14.0: cmd/nvidia-mig-manager/main.go, setupMigConfig"},
	PausesClientsForMIG:    {migManagerImage, "v0.15.0", "v26.7.0", "NVIDIA/mig-parted v0.15.0: pkg/mig/reconfigure/reconfigure.go, shutdownKubernetesGPUClients"},
	KeepsEqualDriver:       {driverManagerImage, "v0.10.0", "v26.3.0", "NVIDIA/k8s-driver-manager v0.10.0: cmd/driver-manager/main.go, shouldSkipUninstall"},
	PausesClientsForDriver: {driverManagerImage, "v0.12.0", "v26.7.0", "NVIDIA/k8s-driver-manager v0.12.0: cmd/driver-manager/main.go, evictAllGPUOperatorComponents"},
}

// cudaOfBranch is the CUDA version that a driver of a branch reports (NVIDIA: CUDA Toolkit release notes, table "CUDA Toolkit
// and Corresponding Driver Versions"; lab/systems.py has the same table).
var cudaOfBranch = map[string]string{
	"535": "12.2", "545": "12.3", "550": "12.4", "555": "12.5", "560": "12.6", "565": "12.7", "570": "12.8", "575": "12.9",
	"580": "13.0", "590": "13.1", "595": "13.2", "610": "13.3",
}

// firstBranchWithProfiles is the first driver branch in which NVML returns MIG profiles while MIG is off (NVIDIA/mig-parted
// v0.14.0: pkg/mig/discovery/discovery.go, ErrNoProfilesDiscovered).
const firstBranchWithProfiles = 550

var imageRelease = regexp.MustCompile(`^v\d+\.\d+\.\d+`)

// Does returns whether the release in an image's tag has a behaviour. An image without one, for example with a digest,
// counts as that of the GPU operator v25.10.1.
func Does(reference string, b Behaviour) bool {
	row := releases[b]
	_, tag, _ := strings.Cut(reference[strings.LastIndex(reference, "/")+1:], ":")
	release := cmp.Or(imageRelease.FindString(tag), row.of.release)
	return slices.Compare(numbers(release), numbers(row.since)) >= 0
}

func numbers(release string) []int {
	var found []int
	for _, part := range strings.Split(strings.TrimPrefix(release, "v"), ".") {
		number, _ := strconv.Atoi(part)
		found = append(found, number)
	}
	return found
}
