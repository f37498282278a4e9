# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands in for the containers of OLM's unpack Jobs: `opm alpha bundle extract` writes the bundle of their image to a ConfigMap."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from .. import build
from ..api import Api, Object
from ..cloud_settings import CloudSettings
from ..layout import Lab
from ..supervisor import tool
from . import catalogs
from .bundles import GPU_OPERATOR, Bundle

_CONFIGMAP_LABEL = "operatorframework.io/bundle-unpack-ref"
_METADATA = {GPU_OPERATOR: "gpu-operator"}


class Unpacker:
    """Unpacks the bundle of each Job once."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._lab, self._folder = lab, folder
        self._done: set[str] = set()

    def advance(self, api: Api, settings: CloudSettings) -> None:
        """Unpack the bundles of new Jobs, unless a fault prevents that."""
        if settings.setting(f"{catalogs.CLOUD}.bundles") != "images" or settings.fault(
            f"{catalogs.CLOUD}.{catalogs.UNPACK_HANGS}"
        ):
            return
        for job in api.list("/apis/batch/v1/jobs", labelSelector=_CONFIGMAP_LABEL):
            if job["metadata"]["uid"] not in self._done and (bundle := self._bundle_of(job, settings)):
                self._unpack(job, bundle)

    def _bundle_of(self, job: Object, settings: CloudSettings) -> Bundle | None:
        images = {container["image"] for container in job["spec"]["template"]["spec"]["initContainers"]}
        for catalog in catalogs.CATALOGS:
            for package in catalogs.served(settings, catalog) or ():
                for bundle in package.bundles:
                    if catalogs.image_of(bundle) in images:
                        return bundle
        return None

    def _unpack(self, job: Object, bundle: Bundle) -> None:
        metadata = job["metadata"]
        folder = self._write(bundle)
        call = [str(tool("olm") / "opm"), "alpha", "bundle", "extract", "-m", f"{folder}/", "-n", metadata["namespace"]]
        call += ["-c", metadata["labels"][_CONFIGMAP_LABEL], "-z", "-k", str(self._lab.pki / "runner.kubeconfig")]
        environment = os.environ | {"CONTAINER_IMAGE": catalogs.image_of(bundle)}
        done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"catalogs: unpacking {bundle.name} failed: {done.stderr[-500:]}", flush=True)
            return
        self._done.add(metadata["uid"])
        print(f"catalogs: unpacked {bundle.name} for Job {metadata['namespace']}/{metadata['name']}", flush=True)

    def _write(self, bundle: Bundle) -> Path:
        """Write a bundle as in its image: manifests, and the metadata of the sources."""
        folder = self._folder / bundle.name
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "manifests").mkdir(parents=True)
        for number, manifest in enumerate(bundle.manifests):
            # JSON is YAML.
            (folder / "manifests" / f"{number:02}.yaml").write_text(json.dumps(manifest, default=str))
        built = build.cached(_METADATA.get(bundle.package, "cluster-nfd-operator"))
        assert built is not None
        shutil.copytree(built / "bundle" / "metadata", folder / "metadata")
        return folder
