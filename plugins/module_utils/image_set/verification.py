# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares the images of a mirror with the digests that a copy recorded, or with the registries from which the images were copied."""

from __future__ import annotations

import functools
import json
import re
import typing as t

from ..common.errors import InvalidOptions, ModuleFailure
from ..common.parallel import call_all
from ..registry.image_copy import select_platforms
from ..registry.reference import parse_image

if t.TYPE_CHECKING:
    from ..registry.client import RegistryClient
    from .mirrored_images import MirroredImage


_DIGEST = re.compile(r"sha\d+:[0-9a-f]{64,}")


class IncompleteMirror(ModuleFailure):
    """Images are missing from the mirror or have an unexpected digest there."""

    code = "mirror"


def verify(
    client: RegistryClient,
    images: t.Sequence[MirroredImage],
    digests_file: str | None,
    platforms: t.Sequence[str] = (),
) -> dict[str, list[str]]:
    """The images that are missing from the mirror, those with an unexpected digest, and those whose expected digest is unknown.

    Without a `digests_file`, the expected digests are those in the registries from which the images were copied. An image that was not copied is only
    required to exist. platforms: the platforms that were copied; empty for all.
    """
    recorded = _read_digests(digests_file) if digests_file else {}

    def source_digest(image: MirroredImage) -> str | None:
        source, chosen = parse_image(image.copy_source), image.platforms(platforms)
        selected = select_platforms(client, source, chosen)[0] if chosen else None
        return selected or client.digest(source)

    def check(image: MirroredImage) -> str:
        actual = client.digest(parse_image(image.destination))
        if actual is None:
            return "missing"
        if not image.copied:
            return ""
        desired = recorded.get(image.stored_as) if digests_file else source_digest(image)
        if not desired:
            return "unrecorded"
        return "altered" if desired != actual else ""

    states = call_all([(image.destination, functools.partial(check, image)) for image in images])
    return {
        state: sorted(
            image.destination for image, image_state in zip(images, states, strict=True) if image_state == state
        )
        for state in ("missing", "altered", "unrecorded")
    }


def require_complete(result: t.Mapping[str, t.Any]) -> None:
    """Raise IncompleteMirror, with the module's result, if verify() has found any image."""
    lines = [f"{name}: is missing" for name in result["missing"]]
    lines += [f"{name}: has an unexpected digest" for name in result["altered"]]
    lines += [
        f"{name}: its expected digest is unknown, because neither digests_file nor (without digests_file) the source registry contains it"
        for name in result["unrecorded"]
    ]
    if lines:
        raise IncompleteMirror(
            "The mirror is incomplete. Run accel.gpu.mirror again:\n" + "\n".join(lines), {"image_set": result}
        )


def _read_digests(path: str) -> dict[str, str]:
    """The recorded digests by image; raises InvalidOptions."""
    try:
        with open(path, encoding="utf-8") as file:
            recorded = json.load(file)
    except OSError as error:
        raise InvalidOptions(
            [
                f"digests_file: {path} cannot be read: {error.strerror}. Run accel.gpu.mirror, which writes this file, or remove the option"
            ]
        ) from None
    except (ValueError, RecursionError):
        recorded = []
    if not isinstance(recorded, dict) or not all(_DIGEST.fullmatch(str(digest)) for digest in recorded.values()):
        raise InvalidOptions([f"digests_file: {path} contains no digests; run accel.gpu.mirror again to write it"])
    return recorded
