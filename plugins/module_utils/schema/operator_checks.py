# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of several fields of gpu_cluster.operator together: nothing is said that the operator would silently ignore."""

from __future__ import annotations

import re

from ..catalog import releases
from ..catalog.chart_values import NFD_MAPS, OPERATOR_MAPS
from ..catalog.releases import Release, release_of
from ..common.nested import get_nested
from .messages import quote, type_name
from .operator_validators import os_tag
from .types import INVALID, Problems
from .validators import is_bare_chart
from .views import Document

_PATH = "gpu_cluster.operator"
_VARIABLE_NAME = "write the name of the variable, as in `- name: HTTPS_PROXY`"
# What only the driver's own container reads (gpu-operator controllers/object_controls.go, transformDriverContainer).
_OF_THE_DRIVER = (
    ("driver", "version"),
    ("driver", "kernel_module_type"),
    ("driver", "secret_env"),
    ("proxy",),
    ("repo_config",),
    ("cert_config",),
)
# What a driver that is built already has no use for; the same function returns before it comes to them.
_OF_THE_BUILD = (("driver", "secret_env"), ("repo_config",), ("cert_config",))
# Fields of the ClusterPolicy that earlier releases drop without a word (CRDs of the tags v24.9.2 to v25.10.0).
_SINCE: tuple[tuple[tuple[str, ...], Release], ...] = (
    (("driver", "kernel_module_type"), (25, 3)),
    (("driver", "secret_env"), (25, 10)),
)


def driver_fields_have_an_effect(cluster: Document) -> Problems:
    """Nothing is said of a driver that is not installed, nor of the build of one that is built."""
    driver = get_nested(cluster, "operator", "driver")
    if get_nested(driver, "enabled") is False:
        for keys in (*_OF_THE_DRIVER, ("driver", "precompiled")):
            if get_nested(cluster, "operator", *keys) not in (None, False):
                yield f"{_PATH}.{'.'.join(keys)}: has no effect with driver.enabled: false; take it out"
    elif get_nested(driver, "precompiled") is True:
        for keys in _OF_THE_BUILD:
            if get_nested(cluster, "operator", *keys) is not None:
                yield f"{_PATH}.{'.'.join(keys)}: has no effect with driver.precompiled: true; take it out"


def driver_version_is_of_its_kind(cluster: Document) -> Problems:
    """A precompiled driver's image is named by its branch, any other by the whole version."""
    version = get_nested(cluster, "operator", "driver", "version")
    precompiled = get_nested(cluster, "operator", "driver", "precompiled")
    if not isinstance(version, str) or precompiled not in (None, True, False):
        return
    path, branch = f"{_PATH}.driver.version", re.fullmatch(r"[0-9]+", version)
    if branch and not precompiled:
        remedy = "write all of it, such as 580.105.08, or say precompiled: true for a driver that is built already"
        yield f"{path}: {quote(version)} is only a branch; {remedy}"
    elif precompiled and not branch:
        remedy = f"write {version.partition('.')[0]}" if version[0].isdigit() and "." in version else "write a branch"
        yield f"{path}: {quote(version)} is not a branch, by which precompiled drivers are named; {remedy}"


def proxy_is_said(cluster: Document) -> Problems:
    """Exceptions from a proxy need one."""
    proxy = get_nested(cluster, "operator", "proxy")
    if get_nested(proxy, "no_proxy") and get_nested(proxy, "http") is None and get_nested(proxy, "https") is None:
        yield f"{_PATH}.proxy.no_proxy: has no effect without http or https; say which proxy, or take it out"


def release_knows_the_fields(cluster: Document) -> Problems:
    """What a release does not know yet, its API server's schema drops without a word."""
    version = get_nested(cluster, "operator", "version")
    version = releases.OPERATOR_VERSION if version is None else version
    if not isinstance(version, str):
        return
    for keys, since in _SINCE:
        if get_nested(cluster, "operator", *keys) is not None and release_of(version) < since:
            remedy = f"it came with v{since[0]}.{since[1]}; take it out, or install a later release"
            yield f"{_PATH}.{'.'.join(keys)}: is not known to the operator {version}; {remedy}"


def release_is_known(cluster: Document) -> Problems:
    """Where an image is in NVIDIA's registry depends on the release, which a chart that is a file does not say here."""
    operator = get_nested(cluster, "operator")
    chart = get_nested(operator, "chart")
    if (
        get_nested(operator, "registry") is None
        or not isinstance(chart, str)
        or get_nested(operator, "version") is not None
    ):
        return
    if not is_bare_chart(chart) and not chart.startswith("oci://"):
        remedy = "beside registry say the chart's version, on which the images' paths depend"
        yield f"{_PATH}.version: is missing; {remedy}"


def values_have_no_os_tag(cluster: Document) -> Problems:
    """The mistake of many guides, also where it is made among the Helm values."""
    version = get_nested(cluster, "operator", "values", "driver", "version")
    reason = os_tag(version) if isinstance(version, str) else None
    if reason:
        yield f"{_PATH}.values.driver.version: {quote(version)} {reason}"


def values_keep_maps(cluster: Document) -> Problems:
    """Where the chart has a map, so have the values: this collection adds its own fields to some of them."""
    for which, maps in (("operator", OPERATOR_MAPS), ("nfd", NFD_MAPS)):
        for path in maps:
            value = get_nested(cluster, which, "values", *path.split("."))
            if value is not None and value is not INVALID and not isinstance(value, dict):
                remedy = "write it as `key: value` lines, or remove it"
                yield f"gpu_cluster.{which}.values.{path}: is {type_name(value)}, and the chart has a map there; {remedy}"


def driver_variables_have_names(cluster: Document) -> Problems:
    """The variables of the proxy are merged into driver.env by name, and the ClusterPolicy accepts nothing else there."""
    variables = get_nested(cluster, "operator", "values", "driver", "env")
    path = f"{_PATH}.values.driver.env"
    if variables is None or variables is INVALID:
        return
    if not isinstance(variables, list):
        yield f"{path}: is {type_name(variables)}, not a list; begin each entry with a dash"
        return
    for index, variable in enumerate(variables):
        if not isinstance(variable, dict):
            yield f"{path}[{index}]: {_quoted(variable)}is {type_name(variable)}, not a map; write `name` and `value` of the variable"
        elif "name" not in variable:
            yield f"{path}[{index}].name: is missing; {_VARIABLE_NAME}"
        elif not isinstance(variable["name"], str):
            name = variable["name"]
            yield f"{path}[{index}].name: {_quoted(name)}is {type_name(name)}, not text; {_VARIABLE_NAME}"
        elif not variable["name"].strip():
            yield f"{path}[{index}].name: {quote(variable['name'])} is empty; {_VARIABLE_NAME}"


def _quoted(value: object) -> str:
    """A number or a boolean, followed by a space; empty for others: text there may be a variable with its value."""
    return f"{quote(value)} " if isinstance(value, (int, float)) else ""


OPERATOR_CHECKS = (
    driver_fields_have_an_effect,
    driver_version_is_of_its_kind,
    proxy_is_said,
    release_knows_the_fields,
    release_is_known,
    values_have_no_os_tag,
    values_keep_maps,
    driver_variables_have_names,
)
