# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads files and objects as other people, tools and guides write them; each file in tests/wild is one case.

A case has a sentence about its source (`what`), a reader (`kind`, the name of a function below), its `input`, and everything that must come out
(`expect`). In `expect`, `remarks` contains a part of each remark, and `problem` a part of the message.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.clouds.machinesets import (
    machine_settings,
    nodegroup_of,
    platform_of_object,
    provider_spec_of,
    zone_of,
)
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.cluster_policy import (
    mig_configmap,
    plugin_configmap,
    policy_tolerations,
    policy_version,
    uses_driver_objects,
)
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.installation import read_installation
from ansible_collections.accel.gpu.plugins.module_utils.licensing import token as gridd
from ansible_collections.accel.gpu.plugins.module_utils.licensing.token import InvalidToken, parse_token
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node, parse_node
from ansible_collections.accel.gpu.plugins.module_utils.olm.observed import Observed, conditions, installed_csv
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.registry.credentials import InvalidAuthFile, read_credentials
from ansible_collections.accel.gpu.plugins.module_utils.report.export import (
    InstalledRelease,
    export_cluster,
    installed_release,
    render_variables,
)
from ansible_collections.accel.gpu.plugins.module_utils.report.export_pools import (
    LiveConfig,
    export_pools,
    leave_out_rejected,
)
from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import merge
from tests.helpers.fleet import node as gpu_node
from tests.helpers.license_tokens import make_token, sign_token, token_claims
from tests.programs import REPO

Document = dict[str, Any]
Result = dict[str, Any]
CASES = sorted((REPO / "tests" / "wild").glob("*.yml"))


class _Loader(yaml.SafeLoader):
    """Reads the tag !unsafe as Ansible does."""


_Loader.add_constructor("!unsafe", lambda loader, item: loader.construct_scalar(item))  # type: ignore[arg-type]


def nodes(case: Document) -> Result:
    """The pools of nodes, given as in tests/helpers/fleet.py, with the objects that configure the operands."""
    listed = [_node(index, fields) for index, fields in enumerate(case["nodes"])]
    policy = {"metadata": {}, "spec": case.get("policy") or {}}
    plugin = {"data": case["plugin"]} if "plugin" in case else None
    mig = {"data": {"config.yaml": case["mig"]}} if "mig" in case else None
    live = LiveConfig(policy, plugin, mig)
    exported = export_pools(listed, live.node_sharing, live.tolerations)
    leave_out_rejected({"name": "prod"}, exported)
    _round_trip({"name": "prod"}, exported.pools, exported.remarks)
    return {"pools": exported.pools, "remarks": exported.remarks}


def _node(index: int, fields: Document) -> Node:
    if "metadata" in fields:
        return parse_node(fields)
    known = {key: value for key, value in fields.items() if key not in ("name", "taints", "count")}
    return gpu_node(fields.get("name", f"n{index + 1}"), taints=tuple(fields.get("taints", ())), **known)


def helm_values(case: Document) -> Result:
    """The values of a release that this collection manages: what is exported besides the derived values."""
    component = case.get("component", "operator")
    planned = getattr(derive({"name": "prod"}, {}, []), component)
    release = InstalledRelease(
        planned.name, planned.namespace, case.get("version", planned.version), merge(planned.values, case["values"])
    )
    pools = case.get("pools", [])
    document, remarks = export_cluster({"name": "prod"}, {component: release}, pools)
    _round_trip(document, pools, remarks)
    fields = document.get(component, {})
    return {"values": fields.get("values", {}), "version": fields.get("version"), "remarks": remarks}


def _round_trip(document: Document, pools: list[Document], remarks: list[str]) -> None:
    """The plan accepts what is exported, the file contains the same, and Ansible would evaluate none of it."""
    derive(document, {}, pools)
    text = render_variables(document, pools, remarks)
    assert yaml.load(text, Loader=_Loader) == {"gpu_cluster": document, "gpu_defaults": {}, "gpu_pools": pools}
    for line in text.splitlines():
        assert line.startswith("#") or "{{" not in line or "!unsafe" in line


def cluster_policy(case: Document) -> Result:
    """The fields of a ClusterPolicy that the export reads."""
    policy = {"metadata": {"name": "cluster-policy"}, **case}
    release = installed_release(policy)
    return {
        "plugin": plugin_configmap(policy),
        "mig": mig_configmap(policy),
        "driver_objects": uses_driver_objects(policy.get("spec") or {}),
        "tolerations": policy_tolerations(policy),
        "version": policy_version(policy),
        "release": [release.namespace, release.name, release.version] if release else None,
    }


def deployment(case: Document) -> Result:
    """Which tool has installed the GPU operator or NFD."""
    installation = read_installation(case["component"], case["object"])
    if installation is None:
        return {"manager": None}
    release = list(installation.release) if installation.release else None
    return {
        "manager": installation.manager,
        "version": installation.version,
        "release": release,
        "running": installation.running,
    }


def subscription(case: Document) -> Result:
    """The Subscription of a package in the objects of a namespace."""
    observed = Observed("nvidia-gpu-operator", subscriptions=tuple(case["objects"]))
    selected = observed.subscription(case["package"])
    return {
        "name": selected["metadata"]["name"] if selected else None,
        "installed": installed_csv(selected),
        "true_conditions": sorted(each.kind for each in conditions(selected).values() if each.is_true),
    }


def machineset(case: Document) -> Result:
    """The machines that a MachineSet creates."""
    platform = platform_of_object(case)
    settings = machine_settings(provider_spec_of(case), {})
    return {
        "platform": platform.name if platform else None,
        "settings": {key: value for key, value in settings.items() if value},
        "zone_labels": dict(zone_of(case, None).labels),
        "managed": nodegroup_of(case) is not None,
    }


def auth_file(case: Document) -> Result:
    """The user for each image."""
    text = case["text"]
    for user, password in (case.get("encode") or {}).items():
        text = text.replace(f"<{user}>", base64.b64encode(f"{user}:{password}".encode()).decode())
    asked: list[str] = []
    try:
        credentials = read_credentials(
            [], text, "/auth.json", {}, lambda name, helper: asked.append(f"{helper} {name}")
        )
    except InvalidAuthFile as error:
        return {"problem": str(error)}
    logins = {image: credentials.find(image) for image in case["images"]}
    return {
        "users": {image: login.username if login else None for image, login in logins.items()},
        "tokens": sorted(image for image, login in logins.items() if login and login.identity_token),
        "asked": asked,
    }


def token(case: Document) -> Result:
    """The client configuration token with these changes of the claims, or another text."""
    text = case.get("text")
    if text is None:
        claims = {**token_claims(**case.get("claims", {})), **case.get("changed", {})}
        claims = {key: value for key, value in claims.items() if key not in case.get("without", ())}
        text = sign_token(claims, header=case.get("header")) if claims else make_token()
    text = case.get("wrap", "%s").replace("%s", text)
    try:
        info = parse_token(text.encode() if case.get("bytes", True) else text)
    except InvalidToken as error:
        return {"problem": str(error)}
    return {
        "server_type": info.server_type,
        "services": sorted({f"{each.host}:{each.port}" for each in info.services}),
        "days": None if info.expires is None else round((info.expires.timestamp() - time.time()) / 86400),
        "signature": info.signature,
        "remarks": list(info.warnings),
    }


def gridd_conf(case: Document) -> Result:
    """The file's own parameters, and the file after FeatureType has been set."""
    text = case["text"]
    return {
        "feature_type": gridd.feature_type_of(text),
        "shown": gridd.shown_gridd_conf(text),
        "managed": gridd.is_managed_gridd_conf(text),
        "remarks": gridd.gridd_conf_warnings(text),
        "with_feature_type_1": gridd.with_parameters(text, {"FeatureType": "1"}),
    }


READERS: Mapping[str, Callable[[Document], Result]] = {
    reader.__name__: reader
    for reader in (
        nodes,
        helm_values,
        cluster_policy,
        deployment,
        subscription,
        machineset,
        auth_file,
        token,
        gridd_conf,
    )
}


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_case(path: Path) -> None:
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert set(case) == {"what", "kind", "input", "expect"}
    result, expected = READERS[case["kind"]](case["input"]), case["expect"]
    assert set(result) == set(expected)
    # JSON compares the types of numbers and booleans as well.
    for key in result.keys() - {"remarks", "problem"}:
        assert json.dumps(result[key], indent=1, sort_keys=True) == json.dumps(expected[key], indent=1, sort_keys=True)
    remarks, parts = result.get("remarks", []), expected.get("remarks", [])
    assert len(remarks) == len(parts), remarks
    assert all(part in remark for part, remark in zip(parts, remarks, strict=True)), remarks
    assert expected.get("problem", "") in result.get("problem", "")


def test_every_kind_has_cases() -> None:
    kinds = [yaml.safe_load(path.read_text(encoding="utf-8"))["kind"] for path in CASES]
    assert {*kinds} == {*READERS}
    assert len(kinds) >= 60
