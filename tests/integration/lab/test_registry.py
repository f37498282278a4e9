# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part registry of a lab: real registries, a bad network in front of them, and pods that pull from them."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import urllib3

from lab.api import Api
from lab.registry import layout, requests, resolve
from lab.registry.logins import passwords
from tests.helpers.polling import until
from tests.helpers.registry_images import AGENT, MEDIA_TYPES, RegistryClient, push_image
from tests.helpers.toxiproxy import Toxiproxy

from .conftest import OwnLab, temporary_lab

pytestmark = [pytest.mark.lab, pytest.mark.usual(60)]

PODS = "/api/v1/namespaces/default/pods"
SECRETS = "/api/v1/namespaces/default/secrets"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnLab]:
    for own in temporary_lab("own-registry", tmp_path_factory.mktemp("home")):
        own.command("up", "--part", "registry")
        yield own


@pytest.fixture
def env(lab: OwnLab) -> dict[str, str]:
    output = lab.shell("python3 -c 'import json, os; print(json.dumps(dict(os.environ)))'")
    actual: dict[str, str] = json.loads(output)
    return actual


@pytest.fixture
def plain(env: Mapping[str, str]) -> RegistryClient:
    return RegistryClient.of(env, "LAB_REGISTRY_PLAIN")


@pytest.fixture
def secure(env: Mapping[str, str]) -> RegistryClient:
    return RegistryClient.of(env, "LAB_REGISTRY_TLS")


@pytest.fixture
def api(lab: OwnLab) -> Api:
    return Api(lab.lab)


def network(env: Mapping[str, str], name: str) -> Toxiproxy:
    return Toxiproxy(int(env["LAB_TOXIPROXY"].rpartition(":")[2]), name=name)


def run_pod(api: Api, name: str, image: str, secrets: tuple[str, ...] = (), **spec: Any) -> None:
    references = [{"name": secret} for secret in secrets]
    body = {"containers": [{"name": "main", "image": image}], "imagePullSecrets": references, **spec}
    api.request("POST", PODS, {"metadata": {"name": name}, "spec": body})


def pull_secret(api: Api, name: str, host: str, user: str, password: str) -> None:
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    content = json.dumps({"auths": {host: {"auth": auth}}})
    body = {"metadata": {"name": name}, "type": "kubernetes.io/dockerconfigjson"}
    api.request("POST", SECRETS, body | {"stringData": {".dockerconfigjson": content}})


def waiting(api: Api, name: str, statuses: str = "containerStatuses") -> dict[str, str]:
    """The reason and the message of a pod that waits, or nothing."""
    actual = (api.get(f"{PODS}/{name}") or {})["status"].get(statuses, [])
    return actual[0]["state"].get("waiting", {}) if actual else {}


def until_back_off(api: Api, name: str, statuses: str = "containerStatuses") -> str:
    def message() -> str:
        state = waiting(api, name, statuses)
        return state["message"] if state.get("reason") == "ImagePullBackOff" else ""

    return str(until(message))


def until_running(api: Api, name: str) -> dict[str, Any]:
    def running() -> dict[str, Any]:
        pod = api.get(f"{PODS}/{name}") or {}
        return pod if pod["status"]["phase"] == "Running" else {}

    actual: dict[str, Any] = until(running)
    return actual


def test_registries_have_their_own_addresses_and_nodes_of_the_default_fleet(
    lab: OwnLab, env: Mapping[str, str]
) -> None:
    status = lab.status()
    ports = {service["name"]: service["port"] for service in status["services"]}
    assert env["LAB_REGISTRY_CACHE"] == f"127.0.0.1:{ports['registry-cache']}"
    assert [one["restarts"] for one in status["services"] if one["name"] in (*layout.REGISTRIES, "toxiproxy")] == [
        0
    ] * 4
    assert status["nodes_ready"] == status["nodes"] > 0


@pytest.mark.parametrize("kind", MEDIA_TYPES)
def test_cache_returns_the_same_digests_and_asks_once(lab: OwnLab, env: Mapping[str, str], kind: str) -> None:
    plain = RegistryClient.of(env, "LAB_REGISTRY_PLAIN")
    pushed = push_image(plain, f"cached/{kind}", "1", kind=kind)
    assert plain.manifest(f"cached/{kind}", "1")["mediaType"] == MEDIA_TYPES[kind][0]
    cache = RegistryClient.of(env, "LAB_REGISTRY_CACHE")
    mark = requests.mark(lab.lab, layout.PLAIN)
    assert cache.digest(f"cached/{kind}", "1") == pushed.digest
    assert cache.manifest(f"cached/{kind}", pushed.manifests["arm64"])["mediaType"] == MEDIA_TYPES[kind][1]
    path = f"/v2/cached/{kind}/blobs/{pushed.layers['arm64']}"
    content = cache.request("GET", path).data
    assert len(content) > 4096
    # The cache stores a layer in the background.
    stored = lab.lab.clouds / "registry" / layout.CACHE / "docker/registry/v2/blobs/sha256"
    digest = pushed.layers["arm64"].partition(":")[2]
    until(lambda: (stored / digest[:2] / digest / "data").exists())
    assert cache.request("GET", path).data == content
    fetched = [
        one for one in requests.requests(lab.lab, layout.PLAIN, mark) if one.path == path and one.method == "GET"
    ]
    assert [(one.status, one.size) for one in fetched] == [(200, len(content))]


def test_login_and_the_lab_s_own_authority_are_required(
    lab: OwnLab, env: Mapping[str, str], secure: RegistryClient
) -> None:
    pushed = push_image(secure, "private/app", "1")
    assert secure.digest("private/app", "1") == pushed.digest
    assert RegistryClient(secure.address, secure.authority).request("GET", "/v2/").status == 401
    wrong = RegistryClient(secure.address, secure.authority, ("lab", "wrong"))
    assert wrong.request("GET", "/v2/private/app/tags/list").status == 401
    with pytest.raises(urllib3.exceptions.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        RegistryClient(secure.address, lab.lab.pki / "ca.crt").request("GET", "/v2/")
    assert Path(env["LAB_REGISTRY_PASSWORD_FILE"]).stat().st_mode & 0o777 == 0o600
    known = passwords(lab.lab)
    assert (
        RegistryClient(secure.address, secure.authority, ("other", known["other"])).request("GET", "/v2/").status == 200
    )
    assert not [secret for secret in known.values() if secret in (lab.lab.logs / "registry-tls.log").read_text()]
    assert not [secret for secret in known.values() if secret in "".join(env.values())]


@pytest.mark.parametrize("kind", MEDIA_TYPES)
def test_skopeo_copies_between_the_registries(
    lab: OwnLab, plain: RegistryClient, secure: RegistryClient, tmp_path: Path, kind: str
) -> None:
    pushed = push_image(plain, f"copied/{kind}", "1", kind=kind)
    assert secure.login
    logins = {"auths": {secure.address: {"auth": base64.b64encode(":".join(secure.login).encode()).decode()}}}
    file = tmp_path / "auth.json"
    file.write_text(json.dumps(logins))
    lab.shell(
        f"skopeo copy --all --preserve-digests --src-tls-verify=false --dest-authfile {file}"
        f' --dest-cert-dir "$(dirname "$LAB_REGISTRY_CA")"'
        f" docker://$LAB_REGISTRY_PLAIN/copied/{kind}:1 docker://$LAB_REGISTRY_TLS/copied/{kind}:2"
    )
    assert secure.digest(f"copied/{kind}", "2") == pushed.digest
    assert secure.has_blob(f"copied/{kind}", pushed.layers["arm64"])


def test_requests_are_counted(lab: OwnLab, plain: RegistryClient) -> None:
    mark = requests.mark(lab.lab, layout.PLAIN)
    push_image(plain, "counted/app", "1", platforms=("amd64",))
    assert plain.digest("counted/app", "2") is None
    counted = requests.count(lab.lab, layout.PLAIN, mark, AGENT)
    # Two blobs, a manifest and an index.
    assert counted == {"POST": 2, "PUT": 4, "HEAD": 1}
    assert [one.status for one in requests.writes(lab.lab, layout.PLAIN, mark)] == [202, 201, 202, 201, 201, 201]
    [missing] = [one for one in requests.requests(lab.lab, layout.PLAIN, mark) if one.method == "HEAD"]
    assert (missing.path, missing.status) == ("/v2/counted/app/manifests/2", 404)


@pytest.mark.parametrize("name", layout.PROXIES)
def test_network_to_a_registry_can_be_cut_and_slow(env: Mapping[str, str], name: str) -> None:
    client = RegistryClient.of(env, f"LAB_{name.upper().replace('-', '_')}")
    proxy = network(env, name)
    assert proxy.address == client.address
    pushed = push_image(client, "far/app", "1")
    proxy.block()
    try:
        with pytest.raises(urllib3.exceptions.HTTPError):
            client.digest("far/app", "1")
    finally:
        proxy.heal()
    assert client.digest("far/app", "1") == pushed.digest
    # A layer of 300 KB at 100 KB a second.
    large = push_image(client, "far/app", "2", platforms=("amd64",), size=300_000)
    proxy.bandwidth(100)
    started = time.monotonic()
    try:
        assert client.request("GET", f"/v2/far/app/blobs/{large.layers['amd64']}").status == 200
    finally:
        proxy.heal()
    assert time.monotonic() - started > 2


def test_deleted_image_is_collected(lab: OwnLab, plain: RegistryClient) -> None:
    pushed = push_image(plain, "deleted/app", "1")
    kept = push_image(plain, "kept/app", "1")
    plain.delete("deleted/app", pushed.digest)
    assert plain.digest("deleted/app", "1") is None
    assert plain.has_blob("deleted/app", pushed.layers["amd64"])
    lab.shell('registry garbage-collect --delete-untagged "$LAB_DIR/registry/registry-plain.json"')
    assert not plain.has_blob("deleted/app", pushed.layers["amd64"])
    assert plain.has_blob("kept/app", kept.layers["amd64"])


def test_pod_with_a_missing_image_runs_when_the_image_is_pushed(lab: OwnLab, plain: RegistryClient, api: Api) -> None:
    image = f"{plain.address}/late/app:1"
    run_pod(api, "late", image)
    message = until_back_off(api, "late")
    assert message == f'Back-off pulling image "{image}": ErrImagePull: {resolve.not_found(image)}'
    events = lab.shell("kubectl get events --field-selector involvedObject.name=late -o jsonpath='{.items[*].message}'")
    assert f'Failed to pull image "{image}": rpc error: code = NotFound' in events
    push_image(plain, "late/app", "1")
    until_running(api, "late")


def test_pod_with_an_existing_image_runs(lab: OwnLab, plain: RegistryClient, api: Api) -> None:
    pushed = push_image(plain, "app", "1")
    mark = requests.mark(lab.lab, layout.PLAIN)
    run_pod(api, "existing", f"localhost:{plain.address.rpartition(':')[2]}/app@{pushed.digest}")
    run_pod(api, "elsewhere", "registry.example/app:1")
    until_running(api, "elsewhere")
    assert until_running(api, "existing")["status"]["containerStatuses"][0]["ready"]
    pulls = requests.requests(lab.lab, layout.PLAIN, mark, resolve.AGENT)
    assert [(one.method, one.path) for one in pulls] == [("HEAD", f"/v2/app/manifests/{pushed.digest}")]


def test_init_container_whose_image_is_missing_blocks_the_others(plain: RegistryClient, api: Api) -> None:
    push_image(plain, "app", "2")
    initial = [{"name": "first", "image": f"{plain.address}/init/app"}]
    run_pod(api, "init", f"{plain.address}/app:2", initContainers=initial)
    message = until_back_off(api, "init", "initContainerStatuses")
    assert message.endswith(resolve.not_found(f"{plain.address}/init/app:latest"))
    assert waiting(api, "init") == {"reason": "PodInitializing"}
    push_image(plain, "init/app", "latest")
    [status] = until_running(api, "init")["status"]["initContainerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 0


def test_pod_needs_the_login_of_a_private_image(secure: RegistryClient, api: Api) -> None:
    push_image(secure, "private/pod", "1")
    assert secure.login
    image = f"{secure.address}/private/pod:1"
    pull_secret(api, "wrong", secure.address, "lab", "wrong")
    pull_secret(api, "right", f"https://{secure.address}/v2/", *secure.login)
    pull_secret(api, "elsewhere", f"{secure.address}/public", *secure.login)
    run_pod(api, "anonymous", image, ("elsewhere", "absent"))
    run_pod(api, "denied", image, ("wrong",))
    run_pod(api, "allowed", image, ("wrong", "right"))
    until_running(api, "allowed")
    assert until_back_off(api, "anonymous").endswith(
        "pull access denied, repository does not exist or may require authorization: authorization failed: no basic auth"
        " credentials"
    )
    assert until_back_off(api, "denied").endswith(
        f"unexpected status from HEAD request to https://{secure.address}/v2/private/pod/manifests/1: 401 Unauthorized"
    )


def test_pod_waits_for_an_unreachable_registry(env: Mapping[str, str], plain: RegistryClient, api: Api) -> None:
    push_image(plain, "app", "3")
    proxy = network(env, "registry-plain-proxy")
    proxy.block()
    try:
        run_pod(api, "unreachable", f"{proxy.address}/app:3")
        message = until_back_off(api, "unreachable")
        assert message.endswith(f"dial tcp {proxy.address}: connect: connection refused")
    finally:
        proxy.heal()
    until_running(api, "unreachable")


def test_gpu_operator_s_image_from_a_registry(lab: OwnLab, plain: RegistryClient) -> None:
    values = "nfd.enabled=false,operator.upgradeCRD=false,operator.repository=$LAB_REGISTRY_PLAIN/nvidia"
    lab.shell(f"helm install gpu $LAB_CHARTS/gpu-operator -n gpu-operator --create-namespace --set {values}")
    select = "kubectl get pods -n gpu-operator -l app=gpu-operator -o json"

    def image(state: str) -> str:
        statuses = [
            one for pod in json.loads(lab.shell(select))["items"] for one in pod["status"].get("containerStatuses", [])
        ]
        return statuses[0]["image"] if statuses and state in statuses[0]["state"] else ""

    repository, _colon, tag = until(lambda: image("waiting")).partition("/")[2].partition(":")
    assert (repository, tag[0]) == ("nvidia/gpu-operator", "v")
    push_image(plain, repository, tag)
    until(lambda: image("running"))
    until(lambda: " runs gpu-operator " in (lab.lab.logs / "runner.log").read_text())


@pytest.mark.sampled(1, group="lifecycles of a lab")
@pytest.mark.usual(30)
def test_content_is_reset_and_restored(lab: OwnLab, env: Mapping[str, str], plain: RegistryClient) -> None:
    secure = RegistryClient.of(env, "LAB_REGISTRY_TLS")
    expected = {client: push_image(client, "saved/app", "1").digest for client in (plain, secure)}
    lab.command("save", "with-images")
    lab.command("reset")
    assert [client.digest("saved/app", "1") for client in expected] == [None, None]
    lab.command("reset", "--to", "with-images")
    assert {client: client.digest("saved/app", "1") for client in expected} == expected
