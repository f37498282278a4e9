# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs that validate GPUs."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ..catalog.releases import ANY_CUDA_VERSION

# The base classes of the programs that validation pods run; PROGRAMS lists them (pure).

# The values of the module's options, of the keys of the pool (fields of PoolPlan), and of gpu_cluster.validation (fields of ValidationPlan), by name.
Options = t.Mapping[str, t.Any]
# In the description of a key, the place of the program's public images.
PUBLIC_IMAGES = "{public_images}"


@dataclass(frozen=True)
class Number:
    """An option of gpu_validation: its default, and its lowest and highest values; with `or_zero`, 0 is allowed as well.

    `per_pool`: it can also be a map of numbers by pool name; for pools that are not in the map, the default applies.
    """

    default: int
    low: int
    high: int
    or_zero: bool = False
    per_pool: bool = False


def excerpt(log: str, limit: int = 300) -> str:
    """The last lines of a log on one line, at most `limit` characters; only a line that is longer than that is cut."""
    shown = ""
    for line in reversed(list(filter(None, map(str.strip, log.splitlines())))):
        text = f"{line} | {shown}" if shown else line
        if shown and len(text) > limit:
            break
        shown = text
    return shown[-limit:] or "(empty)"


class Program:
    """A program that validation pods run, and the meaning of its output."""

    name: t.ClassVar[str]
    """The key of its result."""
    commands: t.ClassVar[tuple[str, ...]]
    """The commands that the shell cannot find if the image lacks the program."""
    image: t.ClassVar[str]
    """The key of its image in gpu_cluster.validation."""
    image_doc: t.ClassVar[str]
    """The description of this key; PUBLIC_IMAGES stands for the public images."""
    images: t.ClassVar[str] = ""
    """The key of its images by CUDA version in gpu_cluster.validation, if these can be set."""
    images_doc: t.ClassVar[str] = ""
    """The description of this key."""
    public_images: t.ClassVar[t.Mapping[str, str]]
    """NVIDIA's images by CUDA version, which are used by default."""
    options: t.ClassVar[t.Mapping[str, Number | bool]]
    """Its options in gpu_validation; a boolean is the default of a switch."""
    requested_by: t.ClassVar[str] = ""
    """The option that requests the program; if empty, it always runs."""
    failures: t.ClassVar[t.Mapping[str, str]] = {}
    """The meaning and remedy of its own error messages, without a full stop, keyed by a case-insensitive regular expression.

    {driver}, {cuda}, {image}, {variable}, {model}, {compute} and {repair} (of a GPU) are replaced. Errors that any program can have, such as
    those of CUDA, are in validation/evaluation.py.
    """
    timeout_remedy: t.ClassVar[str] = ""
    """The remedy if the program does not end; if empty, the GPU is considered hung."""

    @property
    def container(self) -> str:
        """The name of its container."""
        return self.name.replace("_", "-")

    def requested(self, options: Options) -> bool:
        """Whether a run with these options includes the program."""
        return not self.requested_by or bool(options[self.requested_by])

    def covers(self, result: t.Any, options: Options) -> bool:
        """Whether the result of an earlier run is sufficient for these options; `result` is None if there is none."""
        return result is not None

    def describe(self, result: t.Any) -> str:
        """A result as a part of a sentence; empty if there is nothing to report."""
        raise NotImplementedError


class DeviceProgram(Program):
    """A program that runs in every pod with one device."""

    def command(self, options: Options) -> str:
        """The shell command."""
        raise NotImplementedError

    def seconds(self, options: Options) -> int:
        """The additional run time, in seconds, that the options request."""
        return 0

    def evaluate(self, logs: t.Mapping[str, str], options: Options) -> tuple[t.Any, tuple[str, ...]]:
        """The result from the logs of its containers, which are given by pod, and the problems."""
        raise NotImplementedError


class NodeProgram(Program):
    """A program that runs after the others on the free GPUs of one or several nodes, in one pod for each node.

    Its pods get the address of rank 0 in the variable RANK_0. The result is in the log of rank 0.
    """

    title: t.ClassVar[str]
    """Its name in messages."""
    min_gpus: t.ClassVar[int]
    """The number of free GPUs that each node needs."""
    timeout: t.ClassVar[str]
    """The option with the seconds within which its pods must end."""
    env: t.ClassVar[t.Mapping[str, str]] = {}
    """Additional environment variables of its pods."""

    def node_count(self, options: Options) -> int:
        """The number of nodes on which it runs."""
        return 1

    def command(self, rank: int, gpus: int, options: Options) -> str:
        """The shell command in the pod of a rank; `gpus` is the number of GPUs on each node."""
        raise NotImplementedError

    def evaluate(self, log: str, options: Options) -> tuple[dict[str, t.Any], str]:
        """The measured values, and the problem with them; the problem is empty if there is none."""
        raise NotImplementedError


# The program that measures an all-reduce between nodes with PyTorch and NCCL; it runs in the pods.
#
# nccl-tests runs on several nodes only under mpirun, which needs ssh between the pods. torchrun needs only one address and port.

# The bus bandwidth is computed as in nccl-tests: size / time * 2 * (n - 1) / n (doc/PERFORMANCE.md). The last two lines have the format of nccl-tests.
SOURCE = """\
import os
import time

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
wrong, rates = 0, []
for exponent in range(23, 31):
    data = torch.ones(2**exponent // 4, device="cuda")
    dist.all_reduce(data)
    wrong += int((data != size).sum().item())
    data.zero_()
    for phase in ("warm up", "measure"):
        dist.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for turn in range(10):
            dist.all_reduce(data)
        torch.cuda.synchronize()
        seconds = (time.perf_counter() - start) / 10
    rate = 2**exponent / seconds / 1e9 * 2 * (size - 1) / size
    rates.append(rate)
    if rank == 0:
        print(f"{2**exponent:12d} bytes {seconds * 1e6:12.1f} us {rate:8.2f} GB/s", flush=True)
total = torch.tensor([wrong], device="cuda")
dist.all_reduce(total)
if rank == 0:
    print(f"# {'Out of bounds values':20} : {total.item()} {'FAILED' if total.item() else 'OK'}")
    print(f"# {'Avg bus bandwidth':20} : {sum(rates) / len(rates):g} ")
dist.destroy_process_group()
"""


# All programs that validation pods run (pure). A new program needs a class, and an entry in DEVICE_PROGRAMS or NODE_PROGRAMS.
#
# Options, variables, pods, evidence, diagnosis and reports are derived from these entries.

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
    image_doc = (
        "Image of the CUDA kernel for all nodes. It must contain C(vectorAdd), C(sh) and C(timeout) in its C(PATH) or in C(/cuda-samples). By default, "
        "the image in C(images) that matches the driver of the node."
    )
    images = "images"
    images_doc = (
        'Images of the CUDA kernel. Each key is a CUDA version, such as V("12.5"). Each node uses the newest of these images that the node\'s driver '
        "and GPUs support. By default, the images are {public_images}."
    )
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
    image_doc = (
        "Image of the load test (C(gpu_validation_load_seconds)) for all nodes. It must contain C(nbody) in its C(PATH). By default, the newest of these "
        "images that the driver supports: {public_images}."
    )
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
    image_doc = "Image of the all-reduce test. It must contain C(mpirun), C(torchrun), and C(all_reduce_perf_mpi) from nccl-tests. By default, {public_images}."
    # NGC's PyTorch image has nccl-tests as /usr/local/bin/*_perf_mpi (NVIDIA Run:ai, "Validating GPU Cluster Communication with NCCL Tests").
    public_images: t.ClassVar = {ANY_CUDA_VERSION: "nvcr.io/nvidia/pytorch:26.01-py3"}
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
