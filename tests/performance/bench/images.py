# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmark of registry_image on the lab's registries, compared with skopeo: a list of images without changes, and a large image."""

from __future__ import annotations

import base64
import json
import os
import shlex
import statistics
from collections.abc import Callable
from pathlib import Path

from lab.layout import Lab as LabLayout
from lab.registry import layout, requests
from tests.helpers.registry_images import RegistryClient, push_image, push_layers
from tests.labs import Lab

from .request_counts import RequestCounts
from .results import Limit, Measurement, Row, all_runs, ratios
from .timer import Timer

IMAGES, LAYERS, LAYER_MIB = 40, 10, 100
# `skopeo copy` of the same list takes at least five times as long; a copy has at least 0.95 of skopeo's throughput.
UNCHANGED_RATIO, COPY_RATIO = 0.2, 1 / 0.95
MAX_MIB = 100
_MIB = 1 << 20
_MEDIAN_ROUNDS = 3


class RegistryLogs:
    """The access logs of the source and of the mirror."""

    def __init__(self, lab: LabLayout) -> None:
        self._lab = lab
        self._marks: list[tuple[int, int]] = []

    def mark(self) -> int:
        """Return a mark for the current ends of both logs."""
        self._marks.append((requests.mark(self._lab, layout.PLAIN), requests.mark(self._lab, layout.TLS)))
        return len(self._marks) - 1

    def since(self, mark: int, agent: str) -> RequestCounts:
        """Count the requests after a mark from clients whose user agent contains `agent`."""
        actual = [
            request
            for registry, start in zip((layout.PLAIN, layout.TLS), self._marks[mark], strict=True)
            for request in requests.requests(self._lab, registry, start, agent)
        ]
        return RequestCounts(len(actual), writes=sum(1 for request in actual if request.writing))


class ImagesBenchmark:
    """Copies from the plain registry to the one with TLS and a login."""

    def __init__(self, lab: Lab, folder: Path, rounds: int, say: Callable[[str], None]) -> None:
        """Write the auth file that both programs use."""
        self._rounds, self._say = rounds, say
        self._plain, self._tls = lab.env["LAB_REGISTRY_PLAIN"], lab.env["LAB_REGISTRY_TLS"]
        self._client = RegistryClient.of(lab.env, "LAB_REGISTRY_PLAIN")
        password = Path(lab.env["LAB_REGISTRY_PASSWORD_FILE"]).read_text()
        auth = base64.b64encode(f"{lab.env['LAB_REGISTRY_USER']}:{password}".encode()).decode()
        path = folder / "auth.json"
        path.write_text(json.dumps({"auths": {self._tls: {"auth": auth}}}))
        lab.env["REGISTRY_AUTH_FILE"] = str(path)
        self._timer = Timer(lab, RegistryLogs(LabLayout.named(lab.name)))

    def unchanged(self) -> Row:
        """Measure a list of images that the mirror has."""
        self._say(f"pushing {IMAGES} images")
        names = [f"bench/image-{number}:1" for number in range(IMAGES)]
        for name in names:
            push_image(self._client, *name.split(":"))
        images = [{"source": f"{self._plain}/{name}", "destination": f"{self._tls}/{name}"} for name in names]
        self._timer.playbook("images.yml", changed=1, images=images)
        skopeo = " && ".join(self._skopeo(image["source"], image["destination"]) for image in images)
        own: list[list[Measurement]] = []
        other: list[list[Measurement]] = []
        for number in range(self._rounds):
            self._say(f"round {number + 1}: {IMAGES} images without changes, then skopeo copy")
            own.append([self._timer.playbook("images.yml", changed=0, images=images)])
            other.append([self._timer.command("bash", "-c", skopeo, agent="skopeo")])
        runs, per_round = all_runs(own), ratios(own, other, _in_module)
        limits = (
            Limit("seconds in the module / seconds of skopeo", max(per_round), UNCHANGED_RATIO),
            # One for each side, and one to each registry, which shows whether it asks for a login.
            Limit("requests", max(run.requests for run in runs), 2 * IMAGES + 2),
            Limit("writes", max(run.writes for run in runs), 0),
        )
        return Row("images without changes", IMAGES, own, "skopeo copy", other, limits, _NOTE, per_round, "images")

    def large(self) -> Row:
        """Measure the first copy of a large image; the limit is so close to 1 that only the median of several rounds can meet or exceed it."""
        own: list[list[Measurement]] = []
        other: list[list[Measurement]] = []
        for number in range(max(self._rounds, _MEDIAN_ROUNDS)):
            self._say(f"pushing two images of {LAYERS * LAYER_MIB} MiB")
            # Each copy has an image of its own: a registry mounts layers that it has from another repository.
            first, second = (f"{self._plain}/{self._push_large(f'bench/{by}-{number}')}" for by in ("own", "skopeo"))
            self._say(f"round {number + 1}: the first copy of a large image, then skopeo copy")
            image = {"source": first, "destination": first.replace(self._plain, self._tls)}
            # The kernel writes what was pushed or copied last to the disk, which would slow down the next copy.
            os.sync()
            own.append([self._timer.playbook("images.yml", changed=1, images=[image])])
            copied = self._skopeo(second, second.replace(self._plain, self._tls))
            os.sync()
            other.append([self._timer.command("bash", "-c", copied, agent="skopeo")])
        per_round = ratios(own, other, _in_module)
        runs = all_runs(own)
        limits = (
            Limit("seconds in the module / seconds of skopeo, median", statistics.median(per_round), COPY_RATIO),
            Limit("MiB", max(run.mib or 0 for run in runs), MAX_MIB),
        )
        title = f"first copy of an image with {LAYERS} layers"
        return Row(title, LAYERS * LAYER_MIB, own, "skopeo copy", other, limits, "", per_round, "MiB")

    def _push_large(self, repository: str) -> str:
        push_layers(self._client, repository, "1", [LAYER_MIB * _MIB] * LAYERS)
        return f"{repository}:1"

    def _skopeo(self, source: str, destination: str) -> str:
        words = ["skopeo", "copy", "--quiet", "--all", "--preserve-digests", "--src-tls-verify=false"]
        return f'{shlex.join([*words])} --dest-cert-dir "$(dirname "$LAB_REGISTRY_CA")" docker://{source} docker://{destination}'


def _in_module(run: Measurement) -> float:
    """The seconds in the module; the start of Ansible copies nothing."""
    return run.module_seconds or 0


_NOTE = f"""*Images without changes* compares {IMAGES} images in one registry with the same images in another registry, which uses TLS and requires a login.
`skopeo copy` is called once for each image, as in a playbook loop, and sends each manifest again. In both rows about images, the time spent
in the module, excluding Ansible's startup, is compared with the duration of `skopeo copy`."""
