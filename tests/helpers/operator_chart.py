# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A chart of the GPU operator that differs from the pinned one as those from v26.3 on do; its image is that of the pinned release.

Source: deployments/gpu-operator of NVIDIA/gpu-operator at the tags v25.10.1, v26.3.0 and v26.7.0. From the first to the second,
- crds/nvidia.com_clusterpolicies.yaml loses the defaults of migManager.config.name and of operator.defaultRuntime, which is no longer required, and gets
  cdi.nriPluginEnabled and sandboxWorkloads.mode with defaults;
- templates/clusterpolicy.yaml renders migManager.config.name only if the value is set. Up to v25.10.1 it renders the key with an empty value.
In v26.7.0 hostPaths.kubeletRootDir is new, with a default, and operator.initContainer is gone. The images of driver, driver manager and MIG manager are those of
v26.7.0 (values.yaml).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

VERSION, DRIVER = "v26.7.0", "595.91.07"
_IMAGES = {
    ("driver", "version"): DRIVER,
    ("driver", "manager", "version"): "v0.12.0",
    ("migManager", "version"): "v0.15.0",
}
_NAME = "      name: {{ .Values.migManager.config.name }}\n"
_SINCE = {
    ("cdi", "nriPluginEnabled"): {"type": "boolean", "default": False},
    ("sandboxWorkloads", "mode"): {"type": "string", "enum": ["kubevirt", "kata"], "default": "kubevirt"},
    ("hostPaths", "kubeletRootDir"): {"type": "string", "default": "/var/lib/kubelet"},
}


def derive_chart(pinned: Path, folder: Path, image: str) -> Path:
    """Write the chart into the folder; `image` is the tag of the operator's image, which selects the program that runs."""
    chart = Path(shutil.copytree(pinned, folder / "gpu-operator"))
    _edit(chart / "Chart.yaml", lambda document: document.update(version=VERSION, appVersion=VERSION))
    _edit(chart / "values.yaml", lambda values: _change_values(values, image))
    _edit(chart / "crds" / "nvidia.com_clusterpolicies.yaml", _change_definition)
    template = chart / "templates" / "clusterpolicy.yaml"
    text = template.read_text()
    assert text.count(_NAME) == 1
    template.write_text(
        text.replace(_NAME, f"      {{{{- if .Values.migManager.config.name }}}}\n{_NAME}      {{{{- end }}}}\n")
    )
    return chart


def write_definition(chart: Path, path: Path) -> Path:
    """Write the CRD of the ClusterPolicy of a chart, for kubectl."""
    shutil.copy(chart / "crds" / "nvidia.com_clusterpolicies.yaml", path)
    return path


def _edit(path: Path, change: Callable[[Any], Any]) -> None:
    document = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    change(document)
    path.write_text(yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False))


def _change_values(values: Object, image: str) -> None:
    values["operator"]["version"] = image
    del values["operator"]["initContainer"]
    for (*parents, key), version in _IMAGES.items():
        part = values
        for parent in parents:
            part = part[parent]
        assert key in part
        part[key] = version


def _change_definition(definition: Object) -> None:
    (version,) = definition["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del spec["migManager"]["properties"]["config"]["properties"]["name"]["default"]
    del spec["operator"]["properties"]["defaultRuntime"]["default"]
    spec["operator"]["required"].remove("defaultRuntime")
    if not spec["operator"]["required"]:
        del spec["operator"]["required"]
    for (part, key), schema in _SINCE.items():
        spec[part]["properties"][key] = schema
