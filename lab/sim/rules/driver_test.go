// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"maps"
	"testing"
)

func TestDriverVersion(t *testing.T) {
	for image, want := range map[string]string{
		"nvcr.io/nvidia/driver:580.105.08-ubuntu24.04":                        "580.105.08",
		"localhost:5000/nvidia/driver:570.148.08-rhcos4.18":                   "570.148.08",
		"nvcr.io/nvidia/driver:580-6.8.0-79-generic-ubuntu24.04":              "",
		"nvcr.io/nvidia/driver@sha256:0123456789abcdef0123456789abcdef012345": "",
		"localhost:5000/nvidia/driver":                                        "",
	} {
		if got := DriverVersion(image); got != want {
			t.Errorf("%s: %q, not %q", image, got, want)
		}
	}
}

func TestDriverPauses(t *testing.T) {
	before := map[string]string{"nvidia.com/gpu.deploy.device-plugin": "true", "nvidia.com/gpu.deploy.dcgm": "false",
		"nvidia.com/gpu.deploy.operator-validator": "true", "nvidia.com/gpu.deploy.driver": "true"}
	paused := PauseLabelsForDriver(before, false)
	want := map[string]string{"nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade", "nvidia.com/gpu.deploy.operator-validator": "paused-for-driver-upgrade"}
	if !maps.Equal(paused, want) {
		t.Errorf("paused %v", paused)
	}
	after := maps.Clone(before)
	maps.Copy(after, paused)
	maps.Copy(after, ResumeLabelsAfterDriver(after))
	if !maps.Equal(after, before) {
		t.Errorf("resumed %v", after)
	}
}

func TestHardwareUnderAnotherDriver(t *testing.T) {
	h := &Hardware{Driver: "580.95.05", CUDA: "13.0", GPUs: 1}
	if h.WithDriver("") != h || h.WithDriver("580.95.05") != h {
		t.Error("nothing was loaded, and the hardware changed")
	}
	if other := h.WithDriver("570.148.08"); other.Driver != "570.148.08" || other.CUDA != "12.8" || h.Driver != "580.95.05" {
		t.Errorf("%+v", other)
	}
	if other := h.WithDriver("999.1"); other.CUDA != "13.0" {
		t.Errorf("an unknown branch: %+v", other)
	}
	var none *Hardware
	if none.WithDriver("580.1") != nil {
		t.Error("no hardware")
	}
}

func TestDriverFailure(t *testing.T) {
	for _, test := range []struct {
		hardware *Hardware
		faults   string
		want     string
	}{
		{hardware: &Hardware{}, want: ""},
		{hardware: nil, want: ""},
		{hardware: &Hardware{Passthrough: true}, want: NoDevice},
		{hardware: &Hardware{}, faults: "driver-broken", want: ModuleRejected},
		{hardware: &Hardware{Passthrough: true}, faults: "driver-broken=no headers", want: "no headers"},
	} {
		if got := DriverFailure(test.hardware, ParseFaults(test.faults)); got != test.want {
			t.Errorf("%v %q: %q, not %q", test.hardware, test.faults, got, test.want)
		}
	}
}
