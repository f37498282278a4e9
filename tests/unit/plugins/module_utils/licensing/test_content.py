# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The content of the licensing Secret: exact keys, foreign files that stay, and content that is rejected."""

from __future__ import annotations

import base64
from collections.abc import Collection
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import LICENSE_CONFIG_KEY, LICENSE_TOKEN_KEY
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.licensing.content import (
    CONFIG_MAP,
    SECRET,
    DesiredFiles,
    LicenseFiles,
    LicenseTarget,
    desired_files,
    object_body,
    read_files,
)
from ansible_collections.accel.gpu.plugins.module_utils.licensing.token import GriddOptions
from tests.helpers.license_tokens import make_token

NAMESPACE = "gpu-operator"
TARGET = LicenseTarget(SECRET, "licensing-config", ("vdi",))
OLD_WAY = LicenseTarget(CONFIG_MAP, "licensing-config")
TOKEN, OTHER = make_token(), make_token(hosts=["other.example.com"])
MANAGED = b"# Managed by accel.gpu\nFeatureType=1\n"


def desired(
    live: LicenseFiles | None = None,
    text: str | None = None,
    series: Collection[str] = (),
    options: GriddOptions | None = None,
) -> DesiredFiles:
    return desired_files(
        TARGET, live or LicenseFiles(), text, options or GriddOptions(), series, NAMESPACE, exists=live is not None
    )


def secret(kind: str | None = "Opaque", **files: str) -> dict[str, Any]:
    data = {name: base64.b64encode(text.encode()).decode() for name, text in files.items()}
    return {"metadata": {"resourceVersion": "7"}, "type": kind, "data": data}


def test_a_new_secret() -> None:
    actual = desired(text=TOKEN)
    assert actual.files == LicenseFiles(TOKEN.encode(), MANAGED)
    body = object_body(TARGET, NAMESPACE, None, LicenseFiles(), actual.files)
    assert body == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "licensing-config", "namespace": NAMESPACE, "annotations": {"accel.gpu/created": "true"}},
        "type": "Opaque",
        "data": {
            LICENSE_TOKEN_KEY: base64.b64encode(TOKEN.encode()).decode(),
            LICENSE_CONFIG_KEY: base64.b64encode(MANAGED).decode(),
        },
    }
    assert actual.files.shown() == {
        LICENSE_CONFIG_KEY: {"FeatureType": "1"},
        LICENSE_TOKEN_KEY: f"sha256:{actual.token.fingerprint[:16]}",
    }
    assert TOKEN not in str(actual.files.shown())


def test_a_second_run_changes_nothing() -> None:
    live = secret(**{LICENSE_TOKEN_KEY: TOKEN, LICENSE_CONFIG_KEY: MANAGED.decode()})
    files = read_files(TARGET, live, NAMESPACE)
    for text in (TOKEN, None):
        assert object_body(TARGET, NAMESPACE, live, files, desired(files, text).files) is None


def test_a_token_with_a_line_break_in_the_secret_is_kept() -> None:
    files = LicenseFiles(f"{TOKEN}\n".encode(), b"")
    assert desired(files, TOKEN).files == files
    assert desired(files, OTHER).files.token == OTHER.encode()


def test_a_new_token_keeps_a_foreign_configuration() -> None:
    foreign = b"# manual\nFeatureType=4\n"
    actual = desired(LicenseFiles(OTHER.encode(), foreign), TOKEN, {"C"})
    assert actual.files == LicenseFiles(TOKEN.encode(), foreign)
    live = secret(**{LICENSE_TOKEN_KEY: OTHER, LICENSE_CONFIG_KEY: foreign.decode()})
    body = object_body(TARGET, NAMESPACE, live, read_files(TARGET, live, NAMESPACE), actual.files)
    assert body is not None
    assert body["metadata"] == {"name": "licensing-config", "namespace": NAMESPACE, "resourceVersion": "7"}


@pytest.mark.parametrize(
    ("series", "options", "expected"),
    [
        ("", GriddOptions(), b"# Managed by accel.gpu\nFeatureType=1\n"),
        ("Q", GriddOptions(), b"# Managed by accel.gpu\nFeatureType=1\n"),
        ("CQ", GriddOptions(), b"# Managed by accel.gpu\nFeatureType=1\n"),
        ("C", GriddOptions(feature_type=4), b"# Managed by accel.gpu\nFeatureType=4\n"),
        (
            "C",
            GriddOptions(None, "proxy", 3128),
            b"# Managed by accel.gpu\nFeatureType=1\nProxyServerAddress=proxy\nProxyServerPort=3128\n",
        ),
    ],
)
def test_the_composed_configuration(series: str, options: GriddOptions, expected: bytes) -> None:
    assert desired(text=TOKEN, series=set(series), options=options).files.config == expected


def test_the_configuration_of_an_earlier_run() -> None:
    proxy = b"# Managed by accel.gpu\nFeatureType=2\nProxyServerAddress=proxy\nProxyServerPort=3128\n"
    # Without nodes, nothing shows that another FeatureType is needed; the proxy stays in any case.
    assert desired(LicenseFiles(TOKEN.encode(), proxy)).files.config == proxy
    assert desired(LicenseFiles(TOKEN.encode(), proxy), series={"C"}).files.config == proxy.replace(b"=2", b"=1")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (GriddOptions(feature_type=4), ("4", "proxy", "3128")),
        (GriddOptions(None, "other", 80), ("2", "other", "80")),
        (GriddOptions(1, "other", 80), ("1", "other", "80")),
    ],
)
def test_parameters_that_are_not_declared_stay(options: GriddOptions, expected: tuple[str, str, str]) -> None:
    managed = b"# Managed by accel.gpu\nFeatureType=2\nProxyServerAddress=proxy\nProxyServerPort=3128\n"
    files = desired(LicenseFiles(TOKEN.encode(), managed), options=options).files
    assert files.config == (
        "# Managed by accel.gpu\nFeatureType={}\nProxyServerAddress={}\nProxyServerPort={}\n".format(*expected).encode()
    )


def test_what_gives_no_license_is_refused() -> None:
    with pytest.raises(
        InvalidOptions, match="FeatureType=2 requests NVIDIA RTX Virtual Workstation, but vGPU types of the series C"
    ):
        desired(text=TOKEN, series={"C"}, options=GriddOptions(feature_type=2))
    with pytest.raises(InvalidOptions, match="Correct it in Secret gpu-operator/licensing-config"):
        desired(LicenseFiles(TOKEN.encode(), b"FeatureType=0\n"), series={"C"})


@pytest.mark.parametrize(
    ("live", "message"),
    [
        (None, "Secret gpu-operator/licensing-config does not exist, and no token was provided. Set the environment variable NLS_CLIENT_TOKEN, gpu_licensing_token (option token of the module) or gpu_licensing_token_path"),
        (LicenseFiles(None, b"", ("token.tok",)), f"lacks {LICENSE_TOKEN_KEY}, and contains unused keys: token.tok. The GPU operator mounts only"),
        (LicenseFiles(), f"lacks {LICENSE_TOKEN_KEY} and {LICENSE_CONFIG_KEY}. The GPU operator mounts only the keys"),
        (LicenseFiles(TOKEN.encode(), None), f"lacks {LICENSE_CONFIG_KEY}"),
        (LicenseFiles(b"abc", b""), "The token in Secret gpu-operator/licensing-config has 1 part instead of 3"),
    ],
)  # fmt: skip
def test_unusable_secrets_without_a_token(live: LicenseFiles | None, message: str) -> None:
    with pytest.raises(InvalidOptions) as error:
        desired(live)
    assert message in str(error.value)


def test_a_secret_with_wrong_keys_is_completed_by_a_token() -> None:
    actual = desired(LicenseFiles(None, None, ("token.tok",)), TOKEN)
    assert actual.files.is_complete
    assert actual.warnings == (
        "Secret gpu-operator/licensing-config also has token.tok, which the GPU operator does not read. Delete the keys that are not needed.",
    )


def test_a_secret_for_another_purpose_is_not_changed() -> None:
    with pytest.raises(InvalidOptions, match=r'has the type "kubernetes\.io/dockerconfigjson", not Opaque'):
        read_files(TARGET, secret("kubernetes.io/dockerconfigjson"), NAMESPACE)


def test_a_config_map() -> None:
    live = {
        "metadata": {"resourceVersion": "7"},
        "data": {LICENSE_TOKEN_KEY: TOKEN, LICENSE_CONFIG_KEY: ""},
        "binaryData": {"x": "AA=="},
    }
    files = read_files(OLD_WAY, live, NAMESPACE)
    assert files == LicenseFiles(TOKEN.encode(), b"", ("x",))
    body = object_body(OLD_WAY, NAMESPACE, live, files, LicenseFiles(OTHER.encode(), b"FeatureType=1\n"))
    assert body is not None
    assert (body["kind"], body["data"]) == (
        "ConfigMap",
        {LICENSE_TOKEN_KEY: OTHER, LICENSE_CONFIG_KEY: "FeatureType=1\n"},
    )


def test_content_that_is_not_base64() -> None:
    live = {"metadata": {}, "data": {LICENSE_TOKEN_KEY: "%", LICENSE_CONFIG_KEY: ""}}
    with pytest.raises(InvalidOptions, match="is empty"):
        desired(read_files(TARGET, live, NAMESPACE))


@pytest.mark.parametrize("series", [{"Q"}, {"C"}, {"Q", "C"}, {"B", "A"}])
@pytest.mark.parametrize("feature_type", [None, 2])
def test_the_feature_type_does_not_change_once_nodes_show_their_vgpu_types(
    series: set[str], feature_type: int | None
) -> None:
    # The first run on a new cluster sees no node.
    first = desired(text=TOKEN, options=GriddOptions(feature_type)).files
    second = desired(first, TOKEN, series)
    # 2 does not fit other series than Q.
    assert (second.files == first) is (feature_type is None or series == {"Q"})
    assert desired(second.files, TOKEN, series).files == second.files
    assert desired(second.files, TOKEN).files == second.files


FOREIGN = b"# manual\nFeatureType=4\nEnableUI=FALSE\nLicenseInterval = 1440\n\xff\n"


@pytest.mark.parametrize("header", [b"", b"# Managed by accel.gpu\n"])
@pytest.mark.parametrize(
    ("options", "changes"),
    [
        (GriddOptions(), {}),
        (GriddOptions(feature_type=1), {b"FeatureType=4": b"FeatureType=1"}),
        (GriddOptions(None, "a", 1), {b"\xff\n": b"\xff\nProxyServerAddress=a\nProxyServerPort=1\n"}),
    ],
)
def test_other_parameters_of_a_file_stay(header: bytes, options: GriddOptions, changes: dict[bytes, bytes]) -> None:
    before = header + FOREIGN
    expected = before
    for old, new in changes.items():
        expected = expected.replace(old, new)
    actual = desired(LicenseFiles(TOKEN.encode(), before), options=options, series={"C"}).files
    assert actual.config == expected
    assert (LicenseFiles(TOKEN.encode(), before).shown() == actual.shown()) is (not changes)
