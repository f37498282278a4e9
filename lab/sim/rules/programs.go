// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Annotations of a pod whose program ends otherwise than after its `sleep`: its exit code (or `never`), and after how many seconds.
const (
	ExitAnnotation        = "lab.accel.gpu/exit"
	ExitSecondsAnnotation = "lab.accel.gpu/exit-seconds"
)

// Program is a container's command with the GPUs and MIG devices that are visible to it.
type Program struct {
	Node     string
	Hardware *Hardware
	Layout   Layout
	Faults   Faults
	Image    string
	Command  string
	Visible  []string
	// Host is the pod's name, which some programs print.
	Host string
}

// Output is what a container prints, and how its program ends: exit code 0 after its `sleep`, another code after some seconds, or
// never.
type Output struct {
	Lines   []string
	Exit    int
	Seconds int
	Never   bool
}

var (
	cudaOfImage   = regexp.MustCompile(`cuda[:-]?(\d+)\.(\d+)`)
	programTime   = regexp.MustCompile(`timeout -k \d+ (\d+) (\S+)`)
	programGPUs   = regexp.MustCompile(`(?:mpirun -np |--nproc-per-node=)(\d+)`)
	programNodes  = regexp.MustCompile(`--nnodes=(\d+)`)
	programRank   = regexp.MustCompile(`--node-rank=(\d+)`)
	baseImage     = regexp.MustCompile(`(^|/)cuda:`)
	minCompute    = map[int]float64{11: 3.5, 12: 5.0, 13: 7.5}
	cudaErrorText = map[string]string{
		"old":  "CUDA driver version is insufficient for CUDA runtime version",
		"arch": "no kernel image is available for execution on the device",
	}
)

// Run returns the output of the programs that a command contains, in their order; a command without a known program prints the
// list of devices, so that every pod with a GPU has a log.
func (p Program) Run() Output {
	listed := NvidiaSMI(p.Node, p.Hardware, p.Layout, p.Visible)
	timed := programTime.FindStringSubmatch(p.Command)
	if timed == nil {
		return Output{Lines: listed}
	}
	limit, _ := strconv.Atoi(timed[1])
	lines := listed
	if !strings.Contains(p.Command, "nvidia-smi -L") {
		lines = nil
	}
	var o Output
	switch timed[2] {
	case "vectorAdd":
		o = p.vectorAdd(limit)
	case "nbody":
		o = p.nbody()
	case "mpirun":
		o = p.allReduce()
	case "torchrun":
		o = p.networkAllReduce()
	default:
		o = notFound(timed[2])
	}
	o.Lines = append(slices.Clone(lines), o.Lines...)
	return o
}

func notFound(program string) Output {
	return Output{Lines: []string{fmt.Sprintf("timeout: failed to run command '%s': No such file or directory", program)}, Exit: 127}
}

// affects returns whether a fault applies to one of the visible devices.
func (p Program) affects(fault string) bool {
	argument, has := p.Faults[fault]
	if !has || argument == "" {
		return has
	}
	gpu, err := strconv.Atoi(argument)
	if err != nil {
		return true
	}
	if slices.Contains(p.Visible, UUID(p.Node, gpu)) {
		return true
	}
	return slices.ContainsFunc(p.Layout.GPUs[gpu], func(s MIGDevice) bool { return slices.Contains(p.Visible, MIGUUID(p.Node, gpu, s)) })
}

// cudaError returns the error of the first CUDA call, or an empty string.
func (p Program) cudaError() string {
	if p.Faults.Has(KernelDriverOld) {
		return cudaErrorText["old"]
	}
	match := cudaOfImage.FindStringSubmatch(p.Image)
	if match == nil {
		return ""
	}
	major, _ := strconv.Atoi(match[1])
	minor, _ := strconv.Atoi(match[2])
	var driverMajor, driverMinor int
	if n, _ := fmt.Sscanf(p.Hardware.CUDA, "%d.%d", &driverMajor, &driverMinor); n == 2 && (major > driverMajor || major == driverMajor && minor > driverMinor) {
		return cudaErrorText["old"]
	}
	if compute, err := strconv.ParseFloat(p.Hardware.Compute, 64); err == nil && compute < minCompute[major] {
		return cudaErrorText["arch"]
	}
	return ""
}

// vectorAdd is NVIDIA's CUDA sample (NVIDIA/cuda-samples, Samples/0_Introduction/vectorAdd/vectorAdd.cu). Its standard output is a pipe and
// therefore written when it ends, after its standard error; the output of a killed program is lost.
func (p Program) vectorAdd(limit int) Output {
	if baseImage.MatchString(p.Image) {
		return notFound("vectorAdd")
	}
	const title = "[Vector addition of 50000 elements]"
	copied := []string{title, "Copy input data from the host memory to the CUDA device", "CUDA kernel launch with 196 blocks of 256 threads"}
	switch text := p.cudaError(); text {
	case "":
	case cudaErrorText["arch"]:
		return Output{Lines: append([]string{"Failed to launch vectorAdd kernel (error code " + text + ")!"}, copied...), Exit: 1}
	default:
		return Output{Lines: []string{"Failed to allocate device vector A (error code " + text + ")!", title}, Exit: 1}
	}
	copied = append(copied, "Copy output data from the CUDA device to the host memory")
	switch {
	case p.affects(KernelHang):
		if p.Faults[KernelHang] == "unkillable" {
			return Output{Never: true}
		}
		return Output{Exit: 124, Seconds: limit}
	case p.affects(KernelWrong):
		return Output{Lines: append([]string{"Result verification failed at element 0!"}, copied...), Exit: 1}
	}
	return Output{Lines: append(copied, "Test PASSED", "Done")}
}

// gflops are rough rates of nbody by the GPU's family.
var gflops = map[string]float64{"volta": 9000, "turing": 5000, "ampere": 12000, "ada-lovelace": 30000, "hopper": 33000, "blackwell": 40000}

// nbody is NVIDIA's CUDA sample in benchmark mode (Samples/5_Domain_Specific/nbody/nbody.cpp).
func (p Program) nbody() Output {
	if text := p.cudaError(); text != "" {
		return Output{Lines: []string{"CUDA error at bodysystemcuda_impl.h:160 code=35(cudaErrorInsufficientDriver) \"" + text + "\""}, Exit: 1}
	}
	const bodies, turns = 262144, 10
	rate := gflops[p.Hardware.Family]
	interactions := rate / 20
	milliseconds := float64(bodies) * float64(bodies) * turns / interactions / 1e6
	return Output{Lines: []string{
		"> Windowed mode", "> Simulation data stored in video memory", "> Single precision floating point simulation", "> 1 Devices used for simulation",
		fmt.Sprintf("> Compute %s CUDA device: [%s]", p.Hardware.Compute, p.Hardware.Product), fmt.Sprintf("number of bodies = %d", bodies),
		fmt.Sprintf("%d bodies, total time for %d iterations: %.3f ms", bodies, turns, milliseconds),
		fmt.Sprintf("= %.3f billion interactions per second", interactions),
		fmt.Sprintf("= %.3f single-precision GFLOP/s at 20 flops per interaction", rate),
	}}
}

// Rough bus bandwidths in GB/s: over PCIe, over NVLink by family, and over a pod network of 100 Gbit/s.
const (
	pcieBandwidth    = 12.0
	networkBandwidth = 10.5
	slowFactor       = 0.1
)

var nvlinkBandwidth = map[string]float64{"volta": 110, "ampere": 210, "hopper": 350, "blackwell": 620}

func (p Program) linkBandwidth() float64 {
	bandwidth := pcieBandwidth
	if fast, has := nvlinkBandwidth[p.Hardware.Family]; has && !strings.Contains(p.Hardware.Product, "PCI") && (p.Hardware.MIGCapable || p.Hardware.Family == "volta") {
		bandwidth = fast
	}
	if p.Faults.Has(LinkSlow) {
		bandwidth *= slowFactor
	}
	return bandwidth
}

func number(pattern *regexp.Regexp, text string, other int) int {
	if match := pattern.FindStringSubmatch(text); match != nil {
		if found, err := strconv.Atoi(match[1]); err == nil {
			return found
		}
	}
	return other
}

// allReduce is all_reduce_perf of nccl-tests (src/util.cu), one rank for each visible GPU.
func (p Program) allReduce() Output {
	if text := p.cudaError(); text != "" {
		return Output{Lines: []string{fmt.Sprintf("%s: Test CUDA failure common.cu:892 '%s'", p.Host, text)}, Exit: 2}
	}
	gpus := number(programGPUs, p.Command, len(p.Visible))
	if gpus > len(p.Visible) {
		return Output{Lines: []string{fmt.Sprintf("Invalid number of GPUs: %d requested but only %d were found.", gpus, len(p.Visible)),
			"Please check the number of processes and GPUs per process."}, Exit: 3}
	}
	lines := []string{"# nThread 1 nGpus 1 minBytes 8388608 maxBytes 2147483648 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0",
		"#", "# Using devices"}
	for rank := range gpus {
		lines = append(lines, fmt.Sprintf("#  Rank %2d Group  0 Pid %6d on %10s device %2d [0000:%02x:00] %s", rank, 20+rank, p.Host, rank, 16+rank, p.Hardware.Product))
	}
	lines = append(lines, "#",
		"#                                                              out-of-place                       in-place          ",
		"#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
		"#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       ")
	top, wrong := p.linkBandwidth(), 0
	if p.Faults.Has(KernelWrong) {
		wrong = 1
	}
	sum, sizes := 0.0, 0
	for size := 8 << 20; size <= 2<<30; size *= 2 {
		bus := top * float64(size) / float64(size+(16<<20))
		algorithm := bus * float64(gpus) / (2 * float64(gpus-1))
		micro := float64(size) / algorithm / 1e3
		lines = append(lines, fmt.Sprintf("%12d  %12d     float     sum      -1  %7.1f  %6.2f  %6.2f  %5d  %7.1f  %6.2f  %6.2f  %5d",
			size, size/4, micro, algorithm, bus, wrong, micro, algorithm, bus, wrong))
		sum, sizes = sum+bus, sizes+1
	}
	return Output{Lines: append(lines, summary(wrong*sizes*2, sum/float64(sizes))...), Exit: wrong}
}

// networkAllReduce is the collection's own program under torchrun; rank 0 prints the result.
func (p Program) networkAllReduce() Output {
	if number(programRank, p.Command, 0) > 0 {
		return Output{}
	}
	bandwidth := networkBandwidth
	if p.Faults.Has(LinkSlow) {
		bandwidth *= slowFactor
	}
	ranks := number(programGPUs, p.Command, 1) * number(programNodes, p.Command, 1)
	var lines []string
	for exponent := 23; exponent <= 30; exponent++ {
		size := float64(int(1) << exponent)
		micro := size / (bandwidth * float64(ranks) / (2 * float64(ranks-1))) / 1e3
		lines = append(lines, fmt.Sprintf("%12d bytes %12.1f us %8.2f GB/s", int(size), micro, bandwidth))
	}
	return Output{Lines: append(lines, summary(0, bandwidth)[:2]...)}
}

func summary(wrong int, bandwidth float64) []string {
	state := "OK"
	if wrong > 0 {
		state = "FAILED"
	}
	return []string{fmt.Sprintf("# %-20s : %d %s", "Out of bounds values", wrong, state), fmt.Sprintf("# %-20s : %g ", "Avg bus bandwidth", float64(int(bandwidth*1e4))/1e4), "#"}
}
