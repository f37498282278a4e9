# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All-reduce over the GPUs of a node, and between nodes: where it runs, its pods and its results (pure)."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from .network_program import PROGRAM
from .pods import PodRequest, container, device_pod, run_label

if t.TYPE_CHECKING:
    from ..cluster_state.gpu_pods import GpuRequest
    from ..cluster_state.node import Node
    from ..pools.plan import PoolPlan
    from .pods import Workload

CONTAINER = "all-reduce"
# The keys of the results.
NODE, NETWORK = "all_reduce", "network_all_reduce"
# nccl-tests, src/util.cu; network_program.py prints the same lines.
_BANDWIDTH = re.compile(r"^# Avg bus bandwidth\s*: (\d+(?:\.\d+)?(?:e[+-]?\d+)?)", re.MULTILINE)
_WRONG = re.compile(r"^# Out of bounds values\s*: (\d+) FAILED", re.MULTILINE)
# Sizes at which the bandwidth counts and not the latency; 2 GiB fits every GPU of the catalog three times.
_SIZES = "-b 8M -e 2G -f 2"
# torchrun's default port.
_PORT = 29500
_SECONDS = 300
_LINK = "Check nvidia-smi nvlink --status and nvidia-smi topo -m on the node, that Fabric Manager runs, and that no other load uses its GPUs"
_CARDS = "Check the network cards of the nodes, their RDMA devices in the pods (NCCL_DEBUG=INFO), and the load of the network"


@dataclass(frozen=True)
class AllReduceOptions:
    """The requested measurements: over the GPUs of a node, and between `nodes` nodes (0: none); bandwidths are in GB/s, 0: no minimum."""

    image: str
    node: bool = False
    nodes: int = 0
    min_bandwidth: int = 0
    min_network_bandwidth: int = 0
    timeout: int = 900

    @classmethod
    def from_params(cls, params: t.Mapping[str, t.Any], image: str) -> AllReduceOptions:
        """The module's options."""
        return cls(
            image=image,
            node=params["all_reduce"],
            nodes=params["all_reduce_nodes"],
            min_bandwidth=params["min_bandwidth"],
            min_network_bandwidth=params["min_network_bandwidth"],
            timeout=params["all_reduce_timeout"],
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """The requested measurements."""
        return tuple(kind for kind, on in ((NODE, self.node), (NETWORK, self.nodes)) if on)

    def minimum(self, kind: str) -> int:
        """The lowest bandwidth that is accepted."""
        return self.min_bandwidth if kind == NODE else self.min_network_bandwidth


@dataclass(frozen=True)
class AllReduceSite:
    """The nodes of one measurement, and the number of GPUs on each."""

    kind: str
    pool: PoolPlan
    nodes: tuple[Node, ...]
    gpus: int

    def pod_names(self, workload: Workload) -> tuple[str, ...]:
        """The names of its pods, in the order of their ranks."""
        return tuple(self.pod_name(rank, workload) for rank in range(len(self.nodes)))

    def pod_name(self, rank: int, workload: Workload) -> str:
        """The name of the pod of a rank."""
        word = "reduce" if self.kind == NODE else "network"
        return f"accel-gpu-validation-{self.pool.name}-{run_label(workload.run_id)}-{word}-{rank}"


def choose_nodes(
    kind: str, pool: PoolPlan, nodes: t.Sequence[Node], used: t.Mapping[str, t.Sequence[GpuRequest]], count: int
) -> AllReduceSite | str:
    """The `count` schedulable nodes with the most free GPUs, or why there are too few."""
    if pool.sharing.shared or pool.sharing.layout or pool.sharing.demand:
        return "its GPUs are shared or partitioned, and NCCL needs whole GPUs"
    free = {
        node.name: node.allocatable.get(pool.resource, 0)
        - sum(request.count for request in used.get(node.name, ()) if request.resource == pool.resource)
        for node in nodes
    }
    schedulable = [node for node in nodes if node.ready and not node.unschedulable]
    best = sorted(schedulable, key=lambda node: (-free[node.name], node.name))[:count]
    gpus = min((free[node.name] for node in best), default=0)
    least = 2 if kind == NODE else 1
    if len(best) < count or gpus < least:
        return f"fewer than {count} of its nodes have {least} or more free GPUs"
    return AllReduceSite(kind, pool, tuple(best), gpus)


def manifest(site: AllReduceSite, rank: int, address: str, workload: Workload, image: str) -> dict[str, t.Any]:
    """The pod of one rank; `address`: that of rank 0, which the pod of rank 0 knows itself."""
    request = PodRequest(f"{site.kind}-{rank}", site.pool.resource, count=site.gpus)
    script = _node_script(site) if site.kind == NODE else _network_script(site, rank)
    main = container(CONTAINER, image, f"nvidia-smi -L && {script}", request)
    source = {"value": address} if address else {"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    # Open MPI and PyTorch write to the home folder, and NCCL to /dev/shm, where a container has 64 MiB.
    main["env"] = [
        {"name": "HOME", "value": "/tmp"},
        {"name": "PROGRAM", "value": PROGRAM},
        {"name": "RANK_0", **source},
    ]
    main["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]
    pod = device_pod(site.pool, site.nodes[rank], workload, [main])
    pod["spec"]["volumes"] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    pod["metadata"]["name"] = site.pod_name(rank, workload)
    return pod


def _node_script(site: AllReduceSite) -> str:
    return f"timeout -k 5 {_SECONDS} mpirun -np {site.gpus} --bind-to none all_reduce_perf_mpi {_SIZES} -g 1"


def _network_script(site: AllReduceSite, rank: int) -> str:
    return (
        'printf "%s" "$PROGRAM" > /tmp/all_reduce.py && '
        f"timeout -k 5 {_SECONDS} torchrun --nnodes={len(site.nodes)} --node-rank={rank} --nproc-per-node={site.gpus} "
        f'--master-addr="$RANK_0" --master-port={_PORT} /tmp/all_reduce.py'
    )


def on_timeout(kind: str) -> str:
    """The remedy for an all-reduce that does not end."""
    if kind == NODE:
        return f"{_LINK}."
    return f"The pods must reach each other at port {_PORT} and at the ports that NCCL chooses: check network policies. {_CARDS}."


def evaluate(site: AllReduceSite, log: str, minimum: int) -> tuple[dict[str, t.Any], str]:
    """The result in the log of rank 0, and what is wrong with it; an empty text if nothing is."""
    names = ", ".join(node.name for node in site.nodes)
    result: dict[str, t.Any] = {"nodes": [node.name for node in site.nodes], "gpus": site.gpus * len(site.nodes)}
    title = f"all-reduce over {result['gpus']} GPUs of {names}"
    if wrong := _WRONG.search(log):
        return (
            result,
            f"{title}: {wrong[1]} wrong values. A GPU or a link between GPUs corrupts data: run dcgmi diag -r 3",
        )
    measured = _BANDWIDTH.search(log)
    if measured is None:
        return result, f"{title} printed no bandwidth"
    bandwidth = round(float(measured[1]), 1)
    result["bus_bandwidth"] = bandwidth
    if bandwidth < minimum:
        cause = _LINK if site.kind == NODE else _CARDS
        return result, f"{title}: {bandwidth} GB/s bus bandwidth, at least {minimum} is required. {cause}"
    return result, ""


def covers(entry: t.Mapping[str, t.Any], options: AllReduceOptions) -> bool:
    """Whether an entry of the evidence has the requested measurements; one that does not apply counts."""
    for kind in options.kinds:
        result = entry.get(kind)
        if not result or result.get("bus_bandwidth", options.minimum(kind)) < options.minimum(kind):
            return False
        if kind == NETWORK and len(result.get("nodes") or range(options.nodes)) != options.nodes:
            return False
    return True
