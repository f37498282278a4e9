# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's programs use one version of each shared library, which is then compiled once: this halves the build time."""

from __future__ import annotations

import re
from collections import defaultdict

from tests.programs import REPO

_REQUIRED = re.compile(r"^(?:require )?\s*(\S+) (v\S+)(?: // indirect)?$", re.MULTILINE)
_REPLACED = re.compile(r"^\s*(?:replace )?(\S+) => \S+ (v\S+)$", re.MULTILINE)
# Each operator needs the Kubernetes libraries of its release, and process-compose shares almost nothing. NVIDIA's
# agents must be those of the release, and packages with cgo are compiled separately in any case. OLM's registry needs newer
# libraries than Kubernetes, and OpenShift's NFD operator and Machine API older ones. The vCenter's simulator and client share almost nothing.
_KUBERNETES = ("k8s.io/", "sigs.k8s.io/")
APART = {
    "gpu-operator": _KUBERNETES,
    "gpu-operator-25.3": _KUBERNETES,
    "process-compose": ("",),
    "nvidia-agents": ("",),
    "mig-parted": ("",),
    "olm": ("",),
    "cluster-nfd-operator": ("",),
    "machine-api": ("",),
    "govc": ("",),
    "vcsim": ("",),
}
# The compilation of the others waits for Kubernetes' own libraries.
SHARED = ("k8s.io/", "golang.org/x/", "google.golang.org/")


def test_shared_libraries_have_one_version() -> None:
    versions: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for file in [*sorted((REPO / "lab" / "pins").glob("*/go.mod")), *(REPO / "lab").glob("*/go.mod")]:
        text = file.read_text(encoding="utf-8")
        apart = APART.get(file.parent.name, ())
        for module, version in {**dict(_REQUIRED.findall(text)), **dict(_REPLACED.findall(text))}.items():
            if module.startswith(SHARED) and not module.startswith(apart):
                versions[module][version].add(file.parent.name)
    assert len(versions) > 20
    assert {module: dict(actual) for module, actual in versions.items() if len(actual) > 1} == {}
