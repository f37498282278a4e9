# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The license of a node: its status, and why it has none (pure)."""

from __future__ import annotations

import datetime
import re
import typing as t
from collections import Counter
from dataclasses import dataclass, field, fields

from ..catalog.names import COMPONENT_LABEL, DRIVER_COMPONENT, DRIVER_CONTAINER, VGPU_PRESENT_LABEL
from ..catalog.releases import DLS_VERSION_NEEDED, branch_of
from ..catalog.vgpu import feature_mismatch, series_of
from ..core.errors import ModuleFailure
from ..core.messages import abbreviate_nodes, as_sentence, join_words, visible
from ..core.values import format_time
from ..core.waits import is_fatal, run_bounded
from ..kube.errors import ApiError
from ..kube.fields import is_deleting
from ..kube.paths import object_path
from ..nodes.node_check import NOT_READY
from ..nodes.pods import container_failures, is_ready, node_of
from .content import NO_OBJECT, LicenseFiles, LicenseTarget, declared_vgpu_types, vgpu_pools
from .token import (
    CLS,
    FEATURE_TYPE_OPTION,
    RESTART_OPTION,
    SOURCE_OPTION,
    Server,
    TokenInfo,
    are_unreachable,
    feature_type_of,
    fingerprint,
    proxy_of,
    servers_of,
)

if t.TYPE_CHECKING:
    from ..core.module import ArgumentSpec
    from ..core.values import Document
    from ..nodes.node import Node
    from ..pools.plan import Membership, Plan
    from .token import ServiceCheck

# Determines the license state of a node's vGPUs from the output of `nvidia-smi -q` (pure).
#
# Source: NVIDIA Virtual GPU Client Licensing User Guide, "Verifying the License Status of a Licensed Client". The numbers in the expiry have no leading
# zeros.

LICENSED, UNLICENSED, NOT_APPLICABLE, UNKNOWN = "licensed", "unlicensed", "not_applicable", "unknown"
# A node has the worst state of its vGPUs.
_WORST_FIRST = (UNLICENSED, UNKNOWN, LICENSED, NOT_APPLICABLE)

_SECTION, _NAME = "vGPU Software Licensed Product", "Product Name"
_EXPIRY = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2}) (\d{1,2}):(\d{1,2}):(\d{1,2}) GMT", re.ASCII)
_MAX_TEXT = 100


@dataclass(frozen=True)
class LicenseStatus:
    """The license state of a node, with the reported text, the licensed product, the expiry (None if unknown or permanent), and the vGPU type, such as
    NVIDIA A100-10C.
    """

    state: str
    text: str = ""
    product: str = ""
    expires: datetime.datetime | None = None
    vgpu_type: str = ""

    @property
    def is_licensed(self) -> bool:
        """Whether every vGPU has a license."""
        return self.state == LICENSED


def parse_status(output: str) -> LicenseStatus:
    """The state of the node; a node with several vGPUs has the worst of their states."""
    statuses = [_status(fields) for fields in _sections(output)]
    return worst(statuses) or LicenseStatus(NOT_APPLICABLE if "NVSMI LOG" in output else UNKNOWN)


def worst(statuses: t.Iterable[LicenseStatus]) -> LicenseStatus | None:
    """The worst state among a node's vGPUs; None if there are none."""
    return min(statuses, key=lambda status: (_WORST_FIRST.index(status.state), status.expires or _NEVER), default=None)


def printable_characters(text: str) -> str:
    """The printable characters of a string, up to a maximum length."""
    return "".join(character for character in text.strip() if character.isprintable())[:_MAX_TEXT]


_NEVER = datetime.datetime.max.replace(tzinfo=datetime.UTC)


def _sections(output: str) -> t.Iterator[dict[str, str]]:
    """The fields of each section about the licensed product, which are the more deeply indented lines below the section's name. The name of the GPU is
    added under the section's name.
    """
    lines = output.splitlines()
    gpu = ""
    for number, line in enumerate(lines):
        name, value = line.partition(":")[::2]
        if name.strip() == _NAME:
            gpu = printable_characters(value)
        if line.strip() != _SECTION:
            continue
        indentation = _indentation(line)
        fields: dict[str, str] = {_SECTION: gpu}
        for below in lines[number + 1 :]:
            if _indentation(below) <= indentation:
                break
            name, value = below.partition(":")[::2]
            fields[name.strip()] = printable_characters(value)
        yield fields


def _status(fields: t.Mapping[str, str]) -> LicenseStatus:
    text, product, gpu = fields.get("License Status", ""), fields.get(_NAME, ""), fields[_SECTION]
    product = "" if product == "N/A" else product
    if text.startswith("Licensed"):
        return LicenseStatus(LICENSED, text, product, _expiry(text), gpu)
    if text.startswith("Unlicensed"):
        return LicenseStatus(UNLICENSED, text, product, vgpu_type=gpu)
    return LicenseStatus(NOT_APPLICABLE if text == "N/A" else UNKNOWN, text, product, vgpu_type=gpu)


def _expiry(text: str) -> datetime.datetime | None:
    match = _EXPIRY.search(text)
    if match is None:
        return None
    try:
        return datetime.datetime(*map(int, match.groups()), tzinfo=datetime.UTC)  # type: ignore[arg-type,misc]
    except ValueError:
        return None


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip()) if line.strip() else 0


# Represents the driver pods of vGPU nodes, and the license state that is read from each pod (pure).
#
# Source: gpu-operator assets/state-driver/0500_daemonset.yaml and manifests/state-driver/0500_daemonset.yaml (labels, container name).

DRIVER_POD_SELECTOR = f"{COMPONENT_LABEL}={DRIVER_COMPONENT}"
# The files of the license client in the driver container (gpu-driver-container rhel9/nvidia-driver).
CONFIG_PATH = "/etc/nvidia/gridd.conf"
TOKEN_PATH = "/etc/nvidia/ClientConfigToken/client_configuration_token.tok"


@dataclass(frozen=True)
class DriverPod:
    """A driver pod.

    `started` is the start time of the driver container, and `failure` is the reason why the container does not run; empty if it runs. `ready` shows
    whether the driver is loaded. `log_container` is the container whose log may show the failure; empty if the log does not exist.
    """

    name: str
    namespace: str
    node: str
    started: str | None = None
    failure: str = ""
    uid: str = ""
    ready: bool = field(default=False, compare=False)
    log_container: str = field(default="", compare=False)

    @property
    def failure_text(self) -> str:
        """The failure, or the statement that the pod is not ready, as sentences with a command that shows more details."""
        command = f"logs {self.name} -c {self.log_container}" if self.log_container else f"describe pod {self.name}"
        failure = self.failure or f"pod {self.name} is not ready"
        return f"The driver does not run: {failure}. Run kubectl -n {self.namespace} {command}."

    @property
    def path(self) -> str:
        """The path of the pod."""
        return object_path("v1", "Pod", self.name, self.namespace)


@dataclass(frozen=True)
class LicenseNode:
    """A vGPU node, with its pool and its driver pod if these exist. `not_required` is the reason why the node needs no license now; empty if it needs
    one.
    """

    name: str
    pool: str | None
    vgpu_type: str
    driver_version: str
    pod: DriverPod | None
    not_required: str = ""

    @property
    def running_pod(self) -> DriverPod | None:
        """The node's driver pod, if the driver is running."""
        return self.pod if self.pod is not None and not self.pod.failure else None

    def is_known_by(self, reading: Reading) -> bool:
        """Whether the driver runs and its state could be read; otherwise, it is not known whether the node needs a change."""
        return self.running_pod is not None and not reading.error

    def series_with(self, reading: Reading) -> str | None:
        """The series of the node's vGPU type, from the driver or from the labels; None if it is not known."""
        reported = reading.status.vgpu_type if reading.status is not None else ""
        return series_of(reported) or series_of(self.vgpu_type)


@dataclass(frozen=True)
class Reading:
    """The values that were read from a node: the license state, the fingerprints of the files by path (None for a missing file) and the clock; or an
    error.
    """

    status: LicenseStatus | None = None
    files: t.Mapping[str, str | None] = field(default_factory=dict)
    # Seconds by which the node's clock differs from that of this machine; positive if the node's clock is fast.
    clock_skew: float | None = None
    error: str = ""
    # The results of checking the license servers from the node.
    services: tuple[ServiceCheck, ...] = ()
    # The new files that an earlier rotation has written next to the files in use, but not renamed.
    leftovers: tuple[str, ...] = ()
    # Whether the license client runs; None if this was not read.
    client_runs: bool | None = None
    # Whether the state comes from the metric of dcgm-exporter, which does not show the cause.
    from_metric: bool = False

    @property
    def is_licensed(self) -> bool:
        """Whether the node has a license."""
        return self.status is not None and self.status.is_licensed

    @property
    def is_unlicensed(self) -> bool:
        """Whether the driver reports that the node has no license."""
        return self.status is not None and self.status.state == UNLICENSED


def parse_driver_pods(pods: t.Iterable[Document]) -> dict[str, DriverPod]:
    """The driver pods by node. If a node has several, a pod that is not being deleted takes precedence."""
    by_node: dict[str, DriverPod] = {}
    for pod in pods:
        node = node_of(pod)
        if node and (node not in by_node or not is_deleting(pod)):
            by_node[node] = _driver_pod(pod, node)
    return by_node


def _driver_pod(pod: Document, node: str) -> DriverPod:
    metadata, status = pod["metadata"], pod.get("status") or {}
    states = {item["name"]: item.get("state") or {} for item in status.get("containerStatuses") or ()}
    started = (states.get(DRIVER_CONTAINER, {}).get("running") or {}).get("startedAt")
    failure = log_container = ""
    if started is None:
        first = next(iter(container_failures([pod]).get(node, ())), None)
        failure = f"pod {metadata['name']} is in phase {status.get('phase') or 'unknown'}"
        if first is not None:
            failure, log_container = str(first), first.container if first.restarts else ""
    uid = metadata.get("uid", "")
    return DriverPod(metadata["name"], metadata["namespace"], node, started, failure, uid, is_ready(pod), log_container)


def license_nodes(
    plan: Plan, nodes: t.Iterable[Node], membership: Membership, pods: t.Mapping[str, DriverPod]
) -> list[LicenseNode]:
    """The nodes that need a license, sorted by name: nodes whose label shows that their GPU is a vGPU, and nodes of pools with a vGPU driver."""
    pool_of = {name: pool for pool, names in membership.by_pool.items() for name in names}
    declared = {pool.name: declared_vgpu_types(plan, [pool.name]) for pool in vgpu_pools(plan)}

    def license_node(node: Node) -> LicenseNode:
        pool, pod = pool_of.get(node.name), pods.get(node.name)
        types = [] if series_of(node.product) else [each for each in declared.get(pool or "", ()) if series_of(each)]
        product = next(iter(types), node.product)
        return LicenseNode(node.name, pool, product, node.driver or "", pod, _not_required(node, pool, pod))

    return [
        license_node(node)
        for node in sorted(nodes, key=lambda node: node.name)
        if node.has_vgpu
        or (pool_of.get(node.name) in declared and node.has_gpu and node.labels.get(VGPU_PRESENT_LABEL) != "false")
    ]


def _not_required(node: Node, pool: str | None, pod: DriverPod | None) -> str:
    """Why a node does not need a license now, as the end of a sentence; empty if it does."""
    if not node.ready:
        return f"it {NOT_READY}"
    if pod is None and node.unschedulable:
        return "it is cordoned, and has no driver pod"
    if pod is None and pool is None:
        return "it is in no pool, and has no driver pod"
    return ""


# Reads the license state of many nodes in parallel, and separates the errors of single nodes from those that affect every node.

# Each command uses a separate connection, and most of the time is spent on the node.
PARALLEL = 32
_MAX_ERROR = 200
NODE_LEFT = "The node has left the cluster."


class CommandFailed(ModuleFailure):
    """A command in a driver pod has failed; the message is a sentence."""

    code = "command"


def read_parallel(
    calls: t.Iterable[tuple[str, t.Callable[[], Reading]]], on_done: t.Callable[[int], None]
) -> dict[str, Reading]:
    """The readings of nodes by name. The error of a single node becomes part of that node's reading; errors that affect every node are raised."""
    readings = {}
    for outcome in run_bounded(calls, PARALLEL, lambda name, done: on_done(done), fatal=concerns_all):
        if outcome.error is not None and concerns_all(outcome.error):
            raise outcome.error
        if outcome.error is not None:
            readings[outcome.name] = Reading(error=error_sentence(outcome.error))
        elif outcome.value is not None:
            readings[outcome.name] = outcome.value
    return readings


def concerns_all(error: Exception) -> bool:
    """Whether an error affects every node. A broken connection may affect only one kubelet, and a deleted pod affects only its own node."""
    if isinstance(error, ModuleFailure):
        return not isinstance(error, CommandFailed)
    if isinstance(error, ApiError):
        return error.fails_every_request and not (error.unreachable and error.sent)
    return is_fatal(error)


def error_sentence(error: Exception) -> str:
    """The message of an error as one short sentence."""
    return as_sentence(shorten(str(error)))


def shorten(text: str) -> str:
    """The beginning of an error message, on one line."""
    return visible(" ".join(text.split())[:_MAX_ERROR])


# Determines why a node has no license, and what the remedy is (pure).

if t.TYPE_CHECKING:
    pass

# The clock difference in seconds above which a message mentions it.
_MAX_SKEW = 60.0


@dataclass(frozen=True)
class PredictedFiles:
    """The known values of the files that an object will have, in check mode: shortened fingerprints by path, license servers, the proxy and FeatureType."""

    fingerprints: t.Mapping[str, str]
    servers: t.Sequence[Server]
    proxy: str
    feature_type: int | None = None


@dataclass(frozen=True)
class LicenseObject:
    """The object that a driver pod mounts, with the files and the token that the node should use. `token` is None if it is not known or not valid."""

    target: LicenseTarget
    namespace: str
    files: LicenseFiles
    token: TokenInfo | None = None
    # Whether the files could be read. A user may lack permission to read Secrets.
    readable: bool = True
    # In check mode, the known values of the files that the object will have.
    predicted: PredictedFiles | None = None

    @property
    def label(self) -> str:
        """The kind, namespace and name of the object, for messages."""
        return self.target.label(self.namespace)

    @property
    def fingerprints(self) -> dict[str, str]:
        """The fingerprints (or shortened fingerprints) that the files in the container must have, by path; empty if they are not known."""
        if self.predicted is not None:
            return dict(self.predicted.fingerprints)
        digests = {}
        if self.files.token is not None:
            digests[TOKEN_PATH] = fingerprint(self.files.token)
        if self.files.config is not None:
            digests[CONFIG_PATH] = fingerprint(self.files.config)
        return digests

    @property
    def servers(self) -> t.Sequence[Server]:
        """The license servers of the token; empty if the token is not known."""
        if self.predicted is not None:
            return self.predicted.servers
        return servers_of(self.token.services) if self.token is not None else ()

    @property
    def proxy(self) -> str:
        """The proxy in gridd.conf; empty if gridd.conf contains none."""
        return self.predicted.proxy if self.predicted is not None else proxy_of(self.files.config_text)

    @property
    def feature_type(self) -> int | None:
        """FeatureType in gridd.conf; None if it is missing or not known."""
        return self.predicted.feature_type if self.predicted is not None else feature_type_of(self.files.config_text)

    def matches(self, reading: Reading, path: str) -> bool | None:
        """Whether the container has the expected file; None if this is not known."""
        digest = self.fingerprints.get(path)
        return None if digest is None or path not in reading.files else (reading.files[path] or "").startswith(digest)


def problem(node: LicenseNode, reading: Reading, expected: LicenseObject | None, now: datetime.datetime) -> str:
    """Why the node has no license, or lacks the expected files, as a sentence with the remedy; empty if everything is as expected."""
    if node.pod is None:
        return (
            "No driver pod. If the node has joined since the last run, run the playbook new_nodes. Otherwise, check the driver of the pool, and the taints "
            "and labels of the node."
        )
    if node.pod.failure:
        return node.pod.failure_text
    if reading.error:
        return f"The license state could not be read: {reading.error}"
    status = reading.status
    if status is None or status.state == UNKNOWN:
        text = f" ({status.text})" if status is not None and status.text else ""
        return f"nvidia-smi reports no license state{text}. Check the log of pod {node.pod.name}."
    if status.state == NOT_APPLICABLE:
        return "nvidia-smi reports no licensed product. Check that the driver is the vGPU guest driver."
    if status.is_licensed:
        return _outdated(node, reading, expected)
    return f"{status.text}. {_cause(node, reading, expected, now)}"


def _outdated(node: LicenseNode, reading: Reading, expected: LicenseObject | None) -> str:
    """Why a licensed node must be rotated; empty if it does not have to be."""
    if expected is None:
        return ""
    changed = [
        name
        for name, path in (("token", TOKEN_PATH), ("gridd.conf", CONFIG_PATH))
        if expected.matches(reading, path) is False
    ]
    if not changed:
        return ""
    verb = "differs" if len(changed) == 1 else "differ"
    return f"Licensed, but the {join_words(changed)} {verb} from {expected.label}. Run the playbook license_rotate."


def _cause(node: LicenseNode, reading: Reading, expected: LicenseObject | None, now: datetime.datetime) -> str:
    """The most specific cause that the node's status and files indicate."""
    if expected is None or not expected.readable:
        return "Check the licensing Secret, and the log of the driver pod."
    if reading.files.get(TOKEN_PATH, "") is None:
        return (
            f"The driver container has no token: when the driver pod started, {expected.label} was not configured, or nlsEnabled was off. Run the playbook "
            f"license_rotate with {RESTART_OPTION}."
        )
    if expected.token is None:
        return object_problem(expected, now)
    if expected.matches(reading, TOKEN_PATH) is False:
        return f"The token differs from the one in {expected.label}. Run the playbook license_rotate."
    if text := _time_problem(expected, expected.token, now):
        return text
    kind = node.series_with(reading)
    if kind and (reason := feature_mismatch(expected.feature_type, kind)):
        return f"{reason}. Set {FEATURE_TYPE_OPTION}, and run the playbook license_rotate."
    if reading.from_metric:
        return f"The metric does not show the cause. Set {SOURCE_OPTION} to nvidia_smi."
    if expected.matches(reading, CONFIG_PATH) is False:
        return f"gridd.conf differs from the one in {expected.label}. Run the playbook license_rotate."
    return _clock(reading, expected.token, now) or _server(node, reading, expected.token)


def _clock(reading: Reading, token: TokenInfo, now: datetime.datetime) -> str:
    skew = reading.clock_skew
    if skew is None or abs(skew) <= _MAX_SKEW:
        return ""
    direction = "ahead of" if skew > 0 else "behind"
    effect = token.problem(now + datetime.timedelta(seconds=skew))
    by_clock = f"; according to this clock, the token {effect.reason}" if effect else ""
    return f"The clock is {abs(skew):.0f} s {direction} this machine's{by_clock}. Correct the time synchronization (NTP) of the node and of its hypervisor."


def _server(node: LicenseNode, reading: Reading, token: TokenInfo) -> str:
    if not token.services:
        return "The token names no license server. Create a new token in the license system."
    if are_unreachable(reading.services):
        return " ".join(check.message for check in reading.services)
    answering = [check.address for check in reading.services if not check.layer]
    named = answering or [server.address for server in servers_of(token.services)]
    verb, them = ("grants", "it") if len(named) == 1 else ("grant", "them")
    detail = (
        f", even though the node can reach {them}."
        if answering
        else ". Check from the node that the name resolves and the port is reachable, directly or through the proxy."
    )
    texts = [f"{join_words(named)} {verb} no license{detail} Check that the license server has free licenses."]
    if token.server_type != CLS and (release := branch_of(node.driver_version)) and release >= DLS_VERSION_NEEDED[0]:
        texts.append(f"vGPU {release} needs DLS {DLS_VERSION_NEEDED[1]} or later.")
    return " ".join(texts)


def object_problem(expected: LicenseObject, now: datetime.datetime) -> str:
    """Why driver pods cannot get a license with the object, as a sentence with the remedy; empty if they can."""
    if not expected.readable:
        return (
            f"This user is not allowed to read {expected.label}, so neither its token nor the nodes' tokens are verified. Grant permission to read the "
            "object."
        )
    if expected.token is None or not expected.files.is_complete:
        return f"{expected.label} does not exist, or has no valid token and gridd.conf. Run the playbook license with a token."
    return _time_problem(expected, expected.token, now)


def _time_problem(expected: LicenseObject, token: TokenInfo, now: datetime.datetime) -> str:
    problem_now = token.problem(now)
    if problem_now is None:
        return ""
    remedy = problem_now.remedy_with("run the playbook license_rotate with it")
    return f"The token in {expected.label} {problem_now.reason}. {remedy}"


def expiry_warning(expected: LicenseObject, now: datetime.datetime, min_days: int) -> str:
    """A sentence if the token, which must be valid, expires in fewer than `min_days` days; empty otherwise."""
    token = expected.token
    days_left = token.days_left(now) if token else None
    if token is None or days_left is None or days_left >= min_days:
        return ""
    days = "1 day" if days_left == 1 else f"{days_left} days"
    return (
        f"The token in {expected.label} expires at {format_time(token.expires)}, in {days}. Create a new one in the license system, and run the playbook "
        "license_rotate."
    )


# Summarizes the licensing state of a cluster for results and reports (pure).

# The maximum number of different node problems that a result lists.
_MAX_PROBLEMS = 5


@dataclass(frozen=True)
class LicenseLimits:
    """The limits that determine what counts as a problem. Each limit is an option of license_info, and a number.

    min_days: a token that expires in fewer days is a problem.
    """

    min_days: int = 30

    @classmethod
    def from_params(cls, params: t.Mapping[str, t.Any]) -> LicenseLimits:
        """Create the limits from the module's options."""
        return cls(**{item.name: params[item.name] for item in fields(cls)})


LIMIT_OPTIONS: ArgumentSpec = {item.name: {"type": "int", "default": item.default} for item in fields(LicenseLimits)}


@dataclass(frozen=True)
class NodeState:
    """One node with its reading; `problem` is empty if there is none."""

    node: LicenseNode
    reading: Reading
    expected: LicenseObject | None
    problem: str

    @property
    def is_missing(self) -> bool:
        """Whether the node should have a license now, but has none."""
        return not self.reading.is_licensed and not self.node.not_required

    @property
    def token_matches(self) -> bool | None:
        """Whether the node has the token of its Secret; None if this is not known."""
        return self.expected.matches(self.reading, TOKEN_PATH) if self.expected is not None else None

    def as_dict(self, now: datetime.datetime) -> dict[str, t.Any]:
        """The node in the format that the module returns."""
        token = self.expected.token if self.expected is not None and self.token_matches else None
        node, reading, status = self.node, self.reading, self.reading.status
        return {
            "name": node.name,
            "pool": node.pool,
            "vgpu_type": (status.vgpu_type if status is not None else "") or node.vgpu_type,
            "state": status.state if status is not None else UNKNOWN,
            "status": status.text if status is not None else "",
            "product": status.product if status is not None else "",
            "expires": format_time(status.expires) if status is not None else None,
            "pod": node.pod.name if node.pod is not None else None,
            "driver_started": node.pod.started if node.pod is not None else None,
            "token_matches": self.token_matches,
            "token_days_left": token.days_left(now) if token is not None else None,
            "config_matches": self.expected.matches(reading, CONFIG_PATH) if self.expected is not None else None,
            "clock_skew": reading.clock_skew,
            "services": [check.as_dict() for check in reading.services],
            "problem": self.problem,
        }


def node_states(
    nodes: t.Iterable[LicenseNode],
    readings: t.Mapping[str, Reading],
    expected_of: t.Callable[[LicenseNode], LicenseObject | None],
    now: datetime.datetime,
) -> list[NodeState]:
    """The states of the nodes; nodes with a problem come first."""
    states = []
    for node in nodes:
        expected, reading = expected_of(node), readings[node.name]
        text = problem(node, reading, expected, now)
        if node.not_required and not reading.is_licensed:
            text = f"Not verified: {node.not_required}."
        states.append(NodeState(node, reading, expected, text))
    return sorted(states, key=lambda state: (not state.problem, state.node.name))


def _object_result(expected: LicenseObject, now: datetime.datetime) -> dict[str, t.Any]:
    """The result for an object. The values of the token are null if there is no valid token, or if the user is not allowed to read the object."""
    token = expected.token
    names = ("fingerprint", "expires", "not_before", "days_left", "server_type", "services", "valid")
    values = token.as_dict(now) if token is not None else dict.fromkeys(names)
    return {
        "kind": expected.target.kind,
        "name": expected.target.name,
        "namespace": expected.namespace,
        "pools": list(expected.target.pools),
        "readable": expected.readable,
        "complete": expected.files.is_complete,
        **{name: values[name] for name in names},
        "problem": object_problem(expected, now),
    }


def overview(
    states: t.Sequence[NodeState],
    objects: t.Sequence[LicenseObject],
    now: datetime.datetime,
    limits: LicenseLimits,
    *,
    mount_problems: t.Sequence[str] = (),
    no_object_text: str = NO_OBJECT,
    limit: int,
) -> dict[str, t.Any]:
    """The result of license_info. `mount_problems` comes from LicenseCluster.mount_problems(); `limit` is the maximum number of nodes in the result."""
    results = [_object_result(expected, now) for expected in objects]
    days_left = [item["days_left"] for item in results if item["days_left"] is not None]
    outdated = sum(state.token_matches is False for state in states)
    of_objects = [*_object_problems(objects, no_object_text if states else "", now, limits), *mount_problems]
    return {
        "counts": {
            **_counts([state.reading for state in states]),
            "outdated": outdated,
            "not_required": sum(not state.reading.is_licensed and not state.is_missing for state in states),
        },
        "nodes": [state.as_dict(now) for state in states[:limit]],
        "objects": results,
        "days_left": min(days_left, default=None),
        "summary": _summary(states, outdated, min(days_left, default=None)),
        "problems": [*_node_problems(sum(state.is_missing for state in states), outdated, len(states)), *of_objects],
        "warnings": [*of_objects, *problem_lines(states)],
    }


def _summary(states: t.Sequence[NodeState], outdated: int, days_left: int | None) -> str:
    """The state of all nodes and the token that expires first, as one line; empty for a cluster without vGPU nodes."""
    if not states:
        return ""
    licensed = sum(state.reading.is_licensed for state in states)
    parts = [f"{licensed} of {len(states)} vGPU nodes have a license"]
    if outdated:
        parts.append(f"{outdated} {'has' if outdated == 1 else 'have'} a token other than the one in the Secret")
    if days_left is not None:
        parts.append(f"the token expires in {days_left} {'day' if days_left == 1 else 'days'}")
    return "; ".join(parts)


def _counts(readings: t.Collection[Reading]) -> dict[str, int]:
    """The number of all nodes, and the number of nodes in each state."""
    licensed = sum(reading.is_licensed for reading in readings)
    unknown = sum(reading.status is None or reading.status.state == UNKNOWN for reading in readings)
    return {
        "nodes": len(readings),
        "licensed": licensed,
        "unlicensed": len(readings) - licensed - unknown,
        "unknown": unknown,
    }


def missing_text(missing: int, nodes: int) -> str:
    """A sentence with the number of nodes that need a license now, but have none."""
    return f"{missing} of {nodes} nodes have no verified license."


def _node_problems(missing: int, outdated: int, nodes: int) -> t.Iterator[str]:
    """Sentences that contain the number of nodes without a verified license, and the number of nodes with an outdated token."""
    if missing:
        yield missing_text(missing, nodes)
    if outdated:
        subject, whose = ("node has", "its") if outdated == 1 else ("nodes have", "their")
        yield f"{outdated} {subject} a token that differs from the one in {whose} Secret. Run the playbook license_rotate."


def _object_problems(
    objects: t.Sequence[LicenseObject], no_object_text: str, now: datetime.datetime, limits: LicenseLimits
) -> list[str]:
    """Sentences about objects with problems and about tokens that expire soon, each with the remedy; without objects, `no_object_text` if it is not empty."""
    if no_object_text and not objects:
        return [no_object_text]
    texts = [object_problem(expected, now) or expiry_warning(expected, now, limits.min_days) for expected in objects]
    return [text for text in texts if text]


def problem_lines(states: t.Iterable[NodeState], limit: int = _MAX_PROBLEMS) -> list[str]:
    """One line for each different problem, with the affected nodes. The most frequent problems come first."""
    by_text: dict[str, list[str]] = {}
    for state in states:
        if state.problem:
            by_text.setdefault(state.problem, []).append(state.node.name)
    ordered = Counter({text: len(names) for text, names in by_text.items()}).most_common(limit)
    lines = [f"{_capital(abbreviate_nodes(by_text[text]))}: {text}" for text, dummy in ordered]
    rest = len(by_text) - len(ordered)
    return [*lines, f"More problems: {rest}. The result of license_info lists the nodes."] if rest > 0 else lines


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
