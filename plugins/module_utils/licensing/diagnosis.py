# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines why a node has no license, and what the remedy is (pure)."""

from __future__ import annotations

import datetime
import typing as t
from dataclasses import dataclass

from ..catalog.vgpu_releases import DLS_VERSION_NEEDED, branch_of
from ..schema.messages import join_words
from . import gridd_conf
from .connectivity import Server, are_unreachable, proxy_of, servers_of
from .content import LicenseFiles
from .driver_pods import CONFIG_PATH, TOKEN_PATH, LicenseNode, Reading
from .option_names import (
    FEATURE_TYPE_OPTION,
    RESTART_OPTION,
    SOURCE_OPTION,
)
from .status import NOT_APPLICABLE, UNKNOWN
from .targets import LicenseTarget
from .token import CLS, TokenInfo, fingerprint, format_time

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
        return (
            self.predicted.feature_type
            if self.predicted is not None
            else gridd_conf.feature_type_of(self.files.config_text)
        )

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
    kind = node.class_with(reading)
    if kind and (reason := gridd_conf.mismatch(expected.feature_type, kind)):
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
