// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"strings"
	"testing"
)

const (
	samples = "nvcr.io/nvidia/k8s/cuda-sample:"
	kernel  = `sh -c nvidia-smi -L && PATH=$PATH:/cuda-samples timeout -k 5 60 vectorAdd && sleep 10`
	reduce  = `sh -c nvidia-smi -L && timeout -k 5 300 mpirun -np 2 --bind-to none all_reduce_perf_mpi -b 8M -e 2G -f 2 -g 1`
	network = `sh -c timeout -k 5 300 torchrun --nnodes=2 --node-rank=0 --nproc-per-node=8 /tmp/all_reduce.py`
)

func TestPrograms(t *testing.T) {
	driver := func(h *Hardware, cuda, compute string) *Hardware {
		changed := *h
		changed.CUDA, changed.Compute = cuda, compute
		return &changed
	}
	h := driver(a100(2), "12.2", "8.0")
	volta := driver(h, "13.0", "7.0")
	first, second := UUID("n1", 0), UUID("n1", 1)
	mig := MIGUUID("n1", 0, halves.GPUs[0][0])
	for _, test := range []struct {
		name     string
		hardware *Hardware
		faults   string
		image    string
		command  string
		visible  []string
		exit     int
		seconds  int
		text     string
	}{
		{"a kernel", h, "", samples + "vectoradd-cuda11.7.1", kernel, []string{first}, 0, 0, "Test PASSED"},
		{"an image that is too new", h, "", samples + "vectoradd-cuda12.5.0", kernel, []string{first}, 1, 0, "device vector A (error code CUDA driver version is insufficient for CUDA runtime version)!"},
		{"an old driver", h, KernelDriverOld, samples + "vectoradd-cuda11.7.1", kernel, []string{first}, 1, 0, "CUDA driver version is insufficient"},
		{"an image without code for the GPU", volta, "", "registry.example/cuda:13.0.1", strings.Replace(kernel, "vectorAdd", "nbody", 1), []string{first}, 1, 0, "no kernel image is available"},
		{"an image without the program", h, "", "nvcr.io/nvidia/cuda:12.2.0-base-ubi9", kernel, []string{first}, 127, 0, "failed to run command 'vectorAdd'"},
		{"a wrong result", h, KernelWrong, samples + "vectoradd-cuda11.7.1", kernel, []string{first}, 1, 0, "Result verification failed at element 0!"},
		{"a wrong result of the other GPU", h, KernelWrong + "=1", samples + "vectoradd-cuda11.7.1", kernel, []string{first}, 0, 0, "Test PASSED"},
		{"a wrong result of this GPU", h, KernelWrong + "=1", samples + "vectoradd-cuda11.7.1", kernel, []string{second}, 1, 0, "Result verification failed"},
		{"a wrong result of a MIG device", h, KernelWrong + "=0", samples + "vectoradd-cuda11.7.1", kernel, []string{mig}, 1, 0, "Result verification failed"},
		{"a hang", h, KernelHang, samples + "vectoradd-cuda11.7.1", kernel, []string{first}, 124, 60, first},
		{"a load", h, "", samples + "nbody-cuda11.7.1", strings.Replace(kernel, "vectorAdd", "nbody -benchmark", 1), []string{first}, 0, 0, "= 12000.000 single-precision GFLOP/s at 20 flops per interaction"},
		{"an all-reduce", h, "", "nvcr.io/nvidia/pytorch:26.01-py3", reduce, []string{first, second}, 0, 0, "# Avg bus bandwidth    : 165.1"},
		{"one over a slow link", h, LinkSlow, "nvcr.io/nvidia/pytorch:26.01-py3", reduce, []string{first, second}, 0, 0, "# Avg bus bandwidth    : 16.5"},
		{"one with wrong results", h, KernelWrong, "nvcr.io/nvidia/pytorch:26.01-py3", reduce, []string{first, second}, 1, 0, "# Out of bounds values : 18 FAILED"},
		{"one with too few GPUs", h, "", "nvcr.io/nvidia/pytorch:26.01-py3", reduce, []string{first}, 3, 0, "2 requested but only 1 were found"},
		{"one between nodes", h, "", "nvcr.io/nvidia/pytorch:26.01-py3", network, []string{first}, 0, 0, "# Avg bus bandwidth    : 10.5"},
		{"another program", h, "", "busybox:1", "sleep 4", []string{first}, 0, 0, first},
	} {
		t.Run(test.name, func(t *testing.T) {
			layout := Layout{}
			if test.visible[0] == mig {
				layout = halves
			}
			got := Program{Node: "n1", Hardware: test.hardware, Layout: layout, Faults: ParseFaults(test.faults), Image: test.image,
				Command: test.command, Visible: test.visible, Host: "pod"}.Run()
			if text := strings.Join(got.Lines, "\n"); !strings.Contains(text, test.text) || got.Exit != test.exit || got.Seconds != test.seconds {
				t.Errorf("exit %d after %d:\n%s", got.Exit, got.Seconds, text)
			}
		})
	}
}

func TestUnkillablePrograms(t *testing.T) {
	got := Program{Node: "n1", Hardware: a100(1), Faults: ParseFaults(KernelHang + "=unkillable"), Command: kernel, Visible: []string{UUID("n1", 0)}}.Run()
	if !got.Never || len(got.Lines) != 1 {
		t.Errorf("%+v", got)
	}
}
