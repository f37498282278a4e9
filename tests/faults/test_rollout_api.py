# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rolling updates while the API server refuses requests, restarts or is slow: they succeed, or report what is left."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lab import lifecycle, supervisor
from lab.layout import Lab as LabLayout
from tests.faults.api_proxy import Answer, ApiProxy, Request
from tests.helpers.rolling import CORDONED, HALVES, MPS, Rolling
from tests.helpers.toxiproxy import toxiproxy
from tests.helpers.workloads import GPU
from tests.labs import Lab

pytestmark = [
    pytest.mark.sampled(1, group="faults of a rolling update"),
    pytest.mark.usual(60),
    pytest.mark.timeout(600),
]


def status(code: int, reason: str, message: str) -> bytes:
    """A Status object of an API server."""
    kind = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    return json.dumps({**kind, "code": code, "reason": reason, "message": message}).encode()


CONFLICT = Answer(409, status(409, "Conflict", "the object has been modified; please apply your changes to the latest"))
BUSY = Answer(429, status(429, "TooManyRequests", "too many requests, please try again later"), {"Retry-After": "1"})


def share_through(rolling: Rolling, kubeconfig: Path, sharing: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Change the pool's sharing with another kubeconfig."""
    cluster = {"name": rolling.lab.name, "kubeconfig": str(kubeconfig)}
    return rolling.share(sharing, gpu_cluster=cluster, **options)


def require_changed(rolling: Rolling, result: dict[str, Any], offered: dict[str, int]) -> None:
    assert not result.get("failed"), result["msg"]
    rolling.require_offered(offered)
    rolling.require_clean()


def start_gpu_pods(rolling: Rolling) -> None:
    for node in rolling.nodes():
        rolling.users.deployment(node, node, resource=GPU)
    rolling.users.wait_running(len(rolling.nodes()))


@contextmanager
def refusing(
    rolling: Rolling, folder: Path, refuse: Callable[[Request], Answer | None]
) -> Iterator[tuple[ApiProxy, Path]]:
    """A proxy that refuses some requests, and a kubeconfig for it."""
    proxy = ApiProxy(rolling.lab.kubeconfig)
    with proxy.running():
        proxy.before = refuse
        yield proxy, proxy.kubeconfig(folder / "refusing.kubeconfig")


@pytest.mark.parametrize("answer", [CONFLICT, BUSY], ids=["409", "429"])
def test_many_refused_requests(rolling: Rolling, tmp_path: Path, rng: random.Random, answer: Answer) -> None:
    """One of three changing requests is rejected, including those for the Lease."""
    start_gpu_pods(rolling)
    refused = itertools.count()

    def refuse(request: Request) -> Answer | None:
        # An API server answers neither an eviction nor a creation with this conflict.
        possible = request.method in ("PATCH", "PUT") if answer is CONFLICT else request.mutating
        if possible and rng.random() < 1 / 3:
            next(refused)
            return answer
        return None

    with refusing(rolling, tmp_path, refuse) as (dummy, kubeconfig), rolling.users.watched() as watch:
        result = share_through(rolling, kubeconfig, MPS)
    assert next(refused) > 3
    require_changed(rolling, result, {GPU: 4})
    assert len(watch.gone) == len(rolling.nodes())


def restart(lab: Lab, service: str) -> None:
    """Kill a service of this lab; its supervisor restarts it."""
    layout = LabLayout.named(lab.name)
    program = lifecycle.supervisor_program(layout)
    assert program is not None
    [running] = [actual for actual in supervisor.services(layout, program) or [] if actual.name == service]
    os.kill(running.pid, signal.SIGKILL)


def test_the_api_server_restarts(rolling: Rolling) -> None:
    start_gpu_pods(rolling)

    def kill() -> None:
        rolling.users.until(
            lambda: any(CORDONED in annotations for annotations in marks(rolling)), "the change has begun"
        )
        restart(rolling.lab, "kube-apiserver")

    killer = threading.Thread(target=kill)
    killer.start()
    with rolling.users.watched() as watch:
        result = rolling.share(HALVES)
        killer.join()
    require_changed(rolling, result, {GPU: 2})
    assert len(watch.gone) == len(rolling.nodes())


@pytest.mark.soak
@pytest.mark.parametrize("delay", [number / 2 for number in range(10)])
def test_the_api_server_restarts_at_any_moment(rolling: Rolling, delay: float) -> None:
    """NFD's master may drop the labels of a node at such a moment; the run repairs that."""
    start_gpu_pods(rolling)

    def kill() -> None:
        rolling.users.until(
            lambda: any(CORDONED in annotations for annotations in marks(rolling)), "the change has begun"
        )
        time.sleep(delay)
        restart(rolling.lab, "kube-apiserver")

    killer = threading.Thread(target=kill)
    killer.start()
    result = rolling.share(MPS, wait_timeout=240)
    killer.join()
    print(f"repaired: {result['gpu_sharing']['repaired']}")
    require_changed(rolling, result, {GPU: 4})


def marks(rolling: Rolling) -> list[dict[str, str]]:
    return [node["metadata"].get("annotations", {}) for node in rolling.users.api.list("/api/v1/nodes")]


def expiring(lab: Lab, path: Path, seconds: float) -> Path:
    """An administrator's kubeconfig whose certificate expires after this many seconds."""
    layout = LabLayout.named(lab.name)
    authority = x509.load_pem_x509_certificate((layout.pki / "ca.crt").read_bytes())
    signer = serialization.load_pem_private_key((layout.pki / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    names = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters"),
        x509.NameAttribute(NameOID.COMMON_NAME, "hurried"),
    ]
    now = datetime.datetime.now(datetime.UTC)
    created = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(names))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(seconds=seconds))
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    certificate, private = path.with_suffix(".crt"), path.with_suffix(".key")
    certificate.write_bytes(created.public_bytes(serialization.Encoding.PEM))
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    private.write_bytes(key.private_bytes(*form))
    document = yaml.safe_load(lab.kubeconfig.read_text())
    document["users"][0]["user"] = {"client-certificate": str(certificate), "client-key": str(private)}
    path.write_text(yaml.safe_dump(document))
    return path


def test_an_expired_certificate(rolling: Rolling, tmp_path: Path) -> None:
    result = share_through(rolling, expiring(rolling.lab, tmp_path / "old", -60), MPS)
    assert result["failed"] is True
    assert "expired" in result["msg"] or "out of date" in result["msg"], result["msg"]
    rolling.require_offered({GPU: 1})
    rolling.require_clean()


def test_a_certificate_that_expires_during_the_run(rolling: Rolling, tmp_path: Path) -> None:
    """The cordoned node stays cordoned and is reported; the next run continues with it."""
    start_gpu_pods(rolling)
    rolling.users.budget("strict", "a100-1", minAvailable=1)
    soon = expiring(rolling.lab, tmp_path / "soon", 12)
    result = share_through(rolling, soon, MPS, rollout={"max_unavailable": 1, "order": "name"})
    assert result["failed"] is True
    assert "Unauthorized" in result["msg"] or "expired" in result["msg"], result["msg"]
    assert result["gpu_sharing"]["left_cordoned"] == ["a100-1"]
    assert "Nodes that stay cordoned: a100-1." in result["msg"]
    assert [CORDONED in annotations for annotations in marks(rolling)].count(True) == 1
    rolling.users.no_budget("strict")
    require_changed(rolling, rolling.share(MPS), {GPU: 4})


def test_a_latency_of_200_ms(rolling: Rolling, tmp_path: Path) -> None:
    start_gpu_pods(rolling)
    with toxiproxy(rolling.lab.kubeconfig, tmp_path) as (line, kubeconfig):
        line.latency(200)
        require_changed(rolling, share_through(rolling, kubeconfig, MPS), {GPU: 4})


def test_connection_resets(rolling: Rolling, tmp_path: Path, rng: random.Random) -> None:
    """One of a hundred connections is reset in its handshake, and one of twenty requests before or after it is processed."""
    start_gpu_pods(rolling)
    broken = itertools.count()

    def breaks(request: Request) -> None:
        if "accel.gpu/" in request.user_agent and rng.random() < 1 / 40:
            next(broken)
            raise ConnectionResetError

    with toxiproxy(rolling.lab.kubeconfig, tmp_path) as (line, toxic):
        line.resets(0.01)
        proxy = ApiProxy(toxic)
        with proxy.running(), rolling.users.watched() as watch:
            proxy.before = breaks
            proxy.after = lambda request, status: breaks(request)
            result = share_through(rolling, proxy.kubeconfig(tmp_path / "breaking.kubeconfig"), HALVES)
    require_changed(rolling, result, {GPU: 2})
    assert len(watch.gone) == len(rolling.nodes())
    assert next(broken) > 0


def test_ten_seconds_without_connection(rolling: Rolling, tmp_path: Path) -> None:
    start_gpu_pods(rolling)
    with toxiproxy(rolling.lab.kubeconfig, tmp_path) as (line, kubeconfig):

        def cut() -> None:
            rolling.users.until(
                lambda: any(CORDONED in annotations for annotations in marks(rolling)), "the change has begun"
            )
            line.cut(10)

        cutter = threading.Thread(target=cut)
        cutter.start()
        with rolling.users.watched() as watch:
            result = share_through(rolling, kubeconfig, HALVES)
            cutter.join()
    require_changed(rolling, result, {GPU: 2})
    assert len(watch.gone) == len(rolling.nodes())
