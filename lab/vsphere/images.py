# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The OVAs of the lab's OpenShift releases, and the ConfigMap that names the one of a release.

The ConfigMap has the format of openshift/installer (pkg/asset/manifests, coreos-bootimages) with the keys that the Machine Config Operator adds
(openshift/machine-config-operator, pkg/controller/common/constants.go); its stream has that of coreos/stream-metadata-go.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from ..api import Object
from ..openshift.objects import FAILURE_DOMAINS, INFRASTRUCTURE
from ..openshift.releases import RELEASES, Release
from ..systems import SYSTEMS
from . import ova

NAMESPACE, CONFIG_MAP = "openshift-machine-config-operator", "coreos-bootimages"
CHECKSUMS = "sha256sum.txt"


def release_of(release: Release) -> str:
    """Return the RHCOS release of an OpenShift release's boot images."""
    return SYSTEMS[release.system].ostree


def release_before(release: Release) -> str:
    """Return an RHCOS release before that of the boot images."""
    return SYSTEMS[release.system].earlier_ostree


def template(zone: str) -> str:
    """Return the name of the template in a failure domain, as OpenShift's installer names it."""
    return f"{INFRASTRUCTURE}-rhcos-{FAILURE_DOMAINS[zone]['region']}-{zone}"


def file_name(rhcos: str) -> str:
    """Return the name of the OVA of an RHCOS release."""
    return f"rhcos-{rhcos}-vmware.x86_64.ova"


def write(folder: Path) -> None:
    """Write the missing OVAs and the file with their checksums, in the format of sha256sum."""
    folder.mkdir(exist_ok=True)
    for release in RELEASES.values():
        for rhcos in (release_before(release), release_of(release)):
            path = folder / file_name(rhcos)
            if not path.exists():
                temporary = path.with_suffix(".new")
                ova.write(temporary, rhcos)
                temporary.replace(path)
    lines = [f"{_sha256(path)}  {path.name}\n" for path in sorted(folder.glob("*.ova"))]
    (folder / CHECKSUMS).write_text("".join(lines))


def boot_images(folder: Path, base: str, release: Release) -> Object:
    """Return the ConfigMap of a cluster with this release; the OVAs in `folder` have the URLs BASE/NAME."""
    rhcos = release_of(release)
    disk = {"location": f"{base}/{file_name(rhcos)}", "sha256": _sha256(folder / file_name(rhcos))}
    stream = {
        "stream": f"rhcos-{release.minor}",
        "metadata": {"last-modified": "2026-01-12T08:00:00Z", "generator": "accel.gpu lab"},
        "architectures": {
            "x86_64": {"artifacts": {"vmware": {"release": rhcos, "formats": {"ova": {"disk": disk}}}}, "images": {}}
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": NAMESPACE},
        "data": {
            "MCOReleaseImageVersion": release.version,
            "MCOVersionHash": hashlib.sha1(release.version.encode()).hexdigest(),
            "releaseVersion": release.version,
            "stream": json.dumps(stream, indent=2),
        },
    }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
