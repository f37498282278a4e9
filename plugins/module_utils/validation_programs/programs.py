# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All programs that validation pods run (pure). A new program needs a class, and an entry in DEVICE_PROGRAMS or NODE_PROGRAMS.

Options, variables, pods, evidence, diagnosis and reports are derived from these entries.
"""

from __future__ import annotations

import re
import typing as t

from ..catalog.cuda import ANY_VERSION
from .network_all_reduce import SOURCE
from .program import DeviceProgram, NodeProgram, Number, Options, Program, excerpt

# NVIDIA's CUDA samples as /cuda-samples/NAME, with sh and coreutils (NVIDIA/k8s-samples, deployments/container). The tags are used in
# manifests of NVIDIA and of other projects. A driver runs the programs of its own CUDA version and of older ones.
_SAMPLES = "nvcr.io/nvidia/k8s/cuda-sample"
# Other images may contain the programs in their PATH.
_WITH_SAMPLES = "PATH=$PATH:/cuda-samples"
# torchrun's default port.
_PORT = 29500


def _timed(seconds: int, command: str) -> str:
    """The command with a time limit. A process that ignores the signal of `timeout` is killed after five more seconds."""
    return f"timeout -k 5 {seconds} {command}"


class _Kernel(DeviceProgram):
    """NVIDIA's CUDA sample vectorAdd, which verifies its result (NVIDIA/cuda-samples, Samples/0_Introduction/vectorAdd/vectorAdd.cu)."""

    name = "kernel"
    commands = ("vectorAdd",)
    image = "image"
    images = "images"
    public_images: t.ClassVar = {
        "11.2": f"{_SAMPLES}:vectoradd-cuda11.2.1",
        "11.7": f"{_SAMPLES}:vectoradd-cuda11.7.1",
        "12.5": f"{_SAMPLES}:vectoradd-cuda12.5.0",
    }
    options: t.ClassVar = {"kernel_timeout": Number(60, 1, 3600)}
    failures: t.ClassVar = {"result verification failed": "A GPU computes wrong results: {repair}"}
    passed, failed = "passed", "failed"
    _output = "Test PASSED"

    def command(self, options: Options) -> str:
        return f"{_WITH_SAMPLES} {_timed(options['kernel_timeout'], 'vectorAdd')}"

    def evaluate(self, logs: t.Mapping[str, str], options: Options) -> tuple[str, tuple[str, ...]]:
        problems = tuple(
            f"{pod} ended without an error, but its kernel did not print {self._output!r}; its log: {excerpt(log)}"
            for pod, log in sorted(logs.items())
            if self._output not in log
        )
        return self.failed if problems else self.passed, problems

    def describe(self, result: t.Any) -> str:
        return "the CUDA kernel passed" if result == self.passed else ""


class _Load(DeviceProgram):
    """NVIDIA's CUDA sample nbody, repeated (NVIDIA/cuda-samples, Samples/5_Domain_Specific/nbody/nbody.cpp)."""

    name = "load"
    commands = ("nbody",)
    image = "load_image"
    public_images: t.ClassVar = {
        "11.7": f"{_SAMPLES}:nbody-cuda11.7.1",
        "12.5": f"{_SAMPLES}:nbody-cuda12.5.0",
    }
    requested_by = "load_seconds"
    options: t.ClassVar = {requested_by: Number(0, 0, 86400)}
    _rate = re.compile(r"^= (\d+(?:\.\d+)?) (?:single|double)-precision GFLOP/s", re.MULTILINE)

    def command(self, options: Options) -> str:
        """Repeat nbody until the time is over; each run takes about one second on a data center GPU."""
        seconds = self.seconds(options)
        once = _timed(seconds + options["kernel_timeout"], "nbody -benchmark -numbodies=262144 -i=10")
        return (
            f"end=$(($(date +%s) + {seconds})); "
            f'while [ "$(date +%s)" -lt "$end" ]; do {_WITH_SAMPLES} {once} || exit $?; done'
        )

    def seconds(self, options: Options) -> int:
        return int(options[self.requested_by])

    def evaluate(self, logs: t.Mapping[str, str], options: Options) -> tuple[dict[str, t.Any], tuple[str, ...]]:
        """The lowest and the highest of the pods' mean rates."""
        rates = [[float(match[1]) for match in self._rate.finditer(log)] for log in logs.values()]
        means = [round(sum(one) / len(one), 1) for one in rates if one]
        limits = {"min_gflops": min(means), "max_gflops": max(means)} if means else {}
        return {"seconds": self.seconds(options), **limits}, ()

    def covers(self, result: t.Any, options: Options) -> bool:
        return int((result or {}).get("seconds", 0)) >= self.seconds(options)

    def describe(self, result: t.Any) -> str:
        if not result:
            return ""
        rate = f" at {result['min_gflops']} to {result['max_gflops']} GFLOP/s" if "min_gflops" in result else ""
        return f"{result['seconds']} s of load{rate}"


class _AllReduce(NodeProgram):
    """An all-reduce with NCCL; the last lines of its output are those of nccl-tests (src/util.cu)."""

    title = "all-reduce"
    image = "nccl_image"
    # NGC's PyTorch image has nccl-tests as /usr/local/bin/*_perf_mpi (NVIDIA Run:ai, "Validating GPU Cluster Communication with NCCL Tests").
    public_images: t.ClassVar = {ANY_VERSION: "nvcr.io/nvidia/pytorch:26.01-py3"}
    timeout = "all_reduce_timeout"
    minimum: t.ClassVar[str]
    checks: t.ClassVar[str]
    _bandwidth = re.compile(r"^# Avg bus bandwidth\s*: (\d+(?:\.\d+)?(?:e[+-]?\d+)?)", re.MULTILINE)
    _wrong = re.compile(r"^# Out of bounds values\s*: (\d+) FAILED", re.MULTILINE)

    def _seconds(self, options: Options) -> int:
        """The time limit of the measurement; the rest of the timeout is for scheduling and for pulling the image."""
        return int(options[self.timeout]) // 3

    def evaluate(self, log: str, options: Options) -> tuple[dict[str, t.Any], str]:
        if wrong := self._wrong.search(log):
            return {}, f"{wrong[1]} wrong values. A GPU or a link between GPUs corrupts data: run dcgmi diag -r 3"
        measured = self._bandwidth.search(log)
        if measured is None:
            return {}, "the log has no bandwidth"
        bandwidth, minimum = round(float(measured[1]), 1), options[self.minimum]
        problem = f"{bandwidth} GB/s bus bandwidth, but at least {minimum} is required. {self.checks}"
        return {"bus_bandwidth": bandwidth}, problem if bandwidth < minimum else ""

    def covers(self, result: t.Any, options: Options) -> bool:
        """Whether the result meets the minimum; if the measurement does not apply to a pool, its result is sufficient."""
        minimum = options[self.minimum]
        return bool(result) and result.get("bus_bandwidth", minimum) >= minimum

    def describe(self, result: t.Any) -> str:
        if "bus_bandwidth" not in (result or {}):
            return ""
        nodes = len(result["nodes"])
        where = "a node" if nodes == 1 else f"{nodes} nodes"
        return f"{result['bus_bandwidth']} GB/s between {result['gpus']} GPUs of {where}"


class _NodeAllReduce(_AllReduce):
    """The all-reduce of nccl-tests over the GPUs of a node."""

    name = "all_reduce"
    commands = ("mpirun", "all_reduce_perf_mpi")
    min_gpus = 2
    minimum = "min_bandwidth"
    requested_by = "all_reduce"
    options: t.ClassVar = {
        requested_by: False,
        minimum: Number(0, 0, 100_000, per_pool=True),
        _AllReduce.timeout: Number(900, 30, 7200),
    }
    checks = "Check nvidia-smi nvlink --status and nvidia-smi topo -m on the node, that Fabric Manager runs, and that no other load uses its GPUs"
    timeout_remedy = f"{checks}."

    def command(self, rank: int, gpus: int, options: Options) -> str:
        """Use sizes at which bandwidth dominates, not latency; every GPU in the catalog has memory for three times 2 GiB."""
        program = f"mpirun -np {gpus} --bind-to none all_reduce_perf_mpi -b 8M -e 2G -f 2 -g 1"
        return _timed(self._seconds(options), program)


class _NetworkAllReduce(_AllReduce):
    """An all-reduce between nodes, over the network of the pods."""

    name = "network_all_reduce"
    commands = ("torchrun",)
    min_gpus = 1
    minimum = "min_network_bandwidth"
    requested_by = "all_reduce_nodes"
    options: t.ClassVar = {requested_by: Number(0, 2, 64, or_zero=True), minimum: Number(0, 0, 100_000, per_pool=True)}
    env: t.ClassVar = {"PROGRAM": SOURCE}
    checks = "Check the network adapters of the nodes, their RDMA devices in the pods (NCCL_DEBUG=INFO), and the load of the network"
    timeout_remedy = f"The pods must reach each other at port {_PORT} and at the ports that NCCL chooses: check network policies. {checks}."

    def node_count(self, options: Options) -> int:
        return int(options[self.requested_by])

    def command(self, rank: int, gpus: int, options: Options) -> str:
        program = (
            f"torchrun --nnodes={self.node_count(options)} --node-rank={rank} --nproc-per-node={gpus} "
            f'--master-addr="$RANK_0" --master-port={_PORT} /tmp/all_reduce.py'
        )
        return f'printf "%s" "$PROGRAM" > /tmp/all_reduce.py && {_timed(self._seconds(options), program)}'

    def covers(self, result: t.Any, options: Options) -> bool:
        nodes = self.node_count(options)
        return super().covers(result, options) and len(result.get("nodes") or range(nodes)) == nodes


KERNEL = _Kernel()
# In the order in which they run and are reported. The pods of the kernel hold the devices; the load runs in the same pods before the kernel.
DEVICE_PROGRAMS: tuple[DeviceProgram, ...] = (KERNEL, _Load())
NODE_PROGRAMS: tuple[NodeProgram, ...] = (_NodeAllReduce(), _NetworkAllReduce())
PROGRAMS: tuple[Program, ...] = (*DEVICE_PROGRAMS, *NODE_PROGRAMS)
