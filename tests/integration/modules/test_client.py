# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client on a real API server, with injected faults: paged lists, retries, creations with unknown outcome, watches."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.connection_options import ConnectionOptions
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import MAX_ATTEMPTS, ApiError
from tests.faults.api_proxy import Answer, Request
from tests.helpers.kube import Kube, Watched
from tests.helpers.polling import BUSY

GONE = b'{"kind":"Status","status":"Failure","message":"too old","reason":"Expired","code":410,"metadata":{%s}}'


def through(kube: Kube, watched: Watched, **options: Any) -> Client:
    """A client that uses the proxy and sleeps only briefly."""
    chosen = ConnectionOptions(kubeconfig=str(watched.kubeconfig), **options)
    return Client(chosen, "accel.gpu/test", sleep=lambda seconds: time.sleep(min(seconds, 0.05)))


def configmap(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}}


@pytest.mark.parametrize("metadata_only", [True, False])
def test_a_list_is_fetched_page_by_page(kube: Kube, metadata_only: bool) -> None:
    names = kube.nodes(7)
    with kube.watched() as watched:
        client = through(kube, watched)
        listing = client.list(
            "/api/v1/nodes", label_selector=f"test={kube.prefix}", limit=3, metadata_only=metadata_only
        )
        first = next(listing)
        # One page is read, and at most one more is being fetched.
        assert len(watched.proxy.requests) <= 2
        assert listing.resource_version
        rest = list(listing)
        assert [actual["metadata"]["name"] for actual in (first, *rest)] == names
        assert ("spec" in first) is not metadata_only
        assert len(watched.proxy.requests) == 3


@pytest.mark.parametrize("token", [b"", b'"continue":"%s"'])
def test_a_list_with_a_compacted_version_continues_without_repetitions(kube: Kube, token: bytes) -> None:
    names = kube.nodes(5)
    with kube.watched() as watched:
        expired = iter([1])

        def before(request: Request) -> Answer | None:
            if "continue=" in request.path and next(expired, None):
                sent = request.path.partition("continue=")[2].partition("&")[0].encode()
                return Answer(410, GONE % (token % sent if token else b""))
            return None

        watched.proxy.before = before
        actual = list(through(kube, watched).list("/api/v1/nodes", label_selector=f"test={kube.prefix}", limit=2))
    assert [node["metadata"]["name"] for node in actual] == names


def test_temporary_errors_are_retried_within_limits(kube: Kube) -> None:
    with kube.watched() as watched:
        troubles = iter([Answer(500), Answer(503), Answer(429, headers={"Retry-After": "1"}), Answer(504)])
        watched.proxy.before = lambda request: next(troubles, None)
        client = through(kube, watched)
        assert client.get("/api/v1/namespaces/default") is not None
        assert client.request_count == 5
        watched.proxy.before = lambda request: Answer(503, headers={"Retry-After": "2"})
        slow = Client(ConnectionOptions(kubeconfig=str(watched.kubeconfig), request_timeout=2), "accel.gpu/test")
        started = time.monotonic()
        with pytest.raises(ApiError) as caught:
            slow.get("/api/v1/namespaces/default")
        assert caught.value.status == 503
        assert time.monotonic() - started >= 2
        assert slow.request_count <= 3


def test_an_internal_error_is_not_retried_for_long(kube: Kube) -> None:
    with kube.watched() as watched:
        watched.proxy.before = lambda request: Answer(500)
        client = through(kube, watched)
        with pytest.raises(ApiError):
            client.get("/api/v1/namespaces/default")
        assert client.request_count == 3


def test_a_refused_request_is_not_retried(kube: Kube) -> None:
    with kube.watched() as watched:
        for status in (400, 401, 403, 409, 422):
            watched.proxy.before = lambda request, status=status: Answer(status)  # type: ignore[misc]
            client = through(kube, watched)
            with pytest.raises(ApiError) as caught:
                client.patch("/api/v1/namespaces/default", {"metadata": {"resourceVersion": "1"}})
            assert (caught.value.status, client.request_count) == (status, 1)


def test_a_conflict_without_a_version_is_retried(kube: Kube) -> None:
    with kube.watched() as watched:
        hasty = iter([Answer(409), Answer(409)])
        watched.proxy.before = lambda request: next(hasty, None)
        client = through(kube, watched)
        client.patch("/api/v1/namespaces/default", {})
        assert client.request_count == 3
        watched.proxy.before = lambda request: Answer(409)
        client = through(kube, watched)
        with pytest.raises(ApiError) as caught:
            client.patch("/api/v1/namespaces/default", {})
        assert (caught.value.status, client.request_count) == (409, MAX_ATTEMPTS)


class _CutError(Exception):
    """The proxy closes the connection without a response."""


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_create_of_unknown_outcome_is_read_before_it_is_repeated(kube: Kube, carried_out: bool) -> None:
    namespace = kube.namespace()
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    with kube.watched() as watched:
        cuts = iter([1])

        def cut(request: Request, status: int = 0) -> None:
            if request.method == "POST" and next(cuts, None):
                raise _CutError

        def before(request: Request) -> Answer | None:
            return cut(request)  # type: ignore[func-returns-value]

        if carried_out:
            watched.proxy.after = cut
        else:
            watched.proxy.before = before
        client = through(kube, watched)
        created = client.create(collection, configmap("one"))
        assert created["data"] == {"a": "1"}
        posts = [request.method for request in watched.proxy.requests if request.method == "POST"]
        assert len(posts) == 1, "it reached the server once"
    assert len(list(kube.client.list(collection, field_selector="metadata.name=one"))) == 1


def test_a_create_of_unknown_outcome_does_not_adopt_a_foreign_object(kube: Kube) -> None:
    namespace = kube.namespace()
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    with kube.watched() as watched:

        def before(request: Request) -> Answer | None:
            if request.method == "POST":
                kube.client.apply(
                    f"{collection}/one", {**configmap("one"), "data": {"b": "2"}}, manager="other-manager"
                )
                return Answer(504)
            return None

        watched.proxy.before = before
        with pytest.raises(ApiError):
            through(kube, watched).create(collection, configmap("one"))


def test_a_merge_patch_requests_no_response_body(kube: Kube) -> None:
    (name,) = kube.nodes(1, taints=[{"key": "old", "effect": "NoSchedule"}])
    before = kube.node(name)
    new = [{"key": "new", "effect": "NoSchedule"}]
    with kube.watched() as watched:
        client = through(kube, watched)
        client.strategic_merge(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"a": "1"}}}, dry_run=True)
        assert kube.node(name)["metadata"]["labels"] == before["metadata"]["labels"]
        client.strategic_merge(
            f"/api/v1/nodes/{name}", {"metadata": {"labels": {"a": "1", "test": None}}, "spec": {"taints": new}}
        )
        assert "includeObject=None" in watched.last().path
        stale = {"metadata": {"resourceVersion": before["metadata"]["resourceVersion"], "labels": {"a": "2"}}}
        with pytest.raises(ApiError) as caught:
            client.strategic_merge(f"/api/v1/nodes/{name}", stale)
    assert caught.value.conflict
    after = kube.node(name)
    labels = {key: value for key, value in before["metadata"]["labels"].items() if key != "test"}
    assert after["metadata"]["labels"] == {**labels, "a": "1"}
    assert after["spec"]["taints"] == new


def test_an_apply_is_repeated_after_a_broken_connection(kube: Kube) -> None:
    namespace = kube.namespace()
    path = f"/api/v1/namespaces/{namespace}/configmaps/one"
    with kube.watched() as watched:
        cuts = iter([1, 2])

        def cut(request: Request, status: int) -> None:
            if request.method == "PATCH" and next(cuts, None):
                raise _CutError

        watched.proxy.after = cut
        assert through(kube, watched).apply(path, configmap("one"))["data"] == {"a": "1"}
        assert next(cuts, None) is None


def test_a_deletion_without_response_has_succeeded(kube: Kube) -> None:
    namespace = kube.namespace()
    path = f"/api/v1/namespaces/{namespace}/configmaps/one"
    kube.client.apply(path, configmap("one"))
    assert kube.client.delete(path, dry_run=True)
    with kube.watched() as watched:
        cuts = iter([1])

        def cut(request: Request, status: int) -> None:
            if request.method == "DELETE" and next(cuts, None):
                raise _CutError

        client = through(kube, watched)
        assert client.get(path)
        watched.proxy.after = cut
        assert client.delete(path)
    assert kube.client.get(path) is None
    assert not kube.client.delete(path)


def test_a_watch_continues_after_a_break_without_missing_events(kube: Kube) -> None:
    namespace = kube.namespace()
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    listing = kube.client.list(collection)
    list(listing)
    watch = kube.client.watch(collection, resource_version=listing.resource_version, timeout=15)
    kube.client.apply(f"{collection}/a", configmap("a"))
    seen = [next(event for event in watch if event["object"]["metadata"]["name"] == "a")]
    watch.close()  # type: ignore[attr-defined]
    kube.client.apply(f"{collection}/b", configmap("b"))
    version = seen[0]["object"]["metadata"]["resourceVersion"]
    again = kube.client.watch(collection, resource_version=version, timeout=15)
    # The controller may write the namespace's ConfigMap kube-root-ca.crt meanwhile.
    names = (event["object"]["metadata"]["name"] for event in again)
    assert next(name for name in names if name in ("a", "b")) == "b"


def test_a_watch_ends_in_time_and_reports_an_expired_version(kube: Kube) -> None:
    namespace = kube.namespace()
    collection = f"/api/v1/namespaces/{namespace}/secrets"
    listing = kube.client.list(collection)
    list(listing)
    started = time.monotonic()
    events = kube.client.watch(collection, resource_version=listing.resource_version, timeout=2)
    assert list(itertools.islice(events, 5)) == []
    assert time.monotonic() - started < BUSY * 10
    with kube.watched() as watched:
        watched.proxy.before = lambda request: Answer(410, GONE % b"")
        with pytest.raises(ApiError) as caught:
            next(through(kube, watched).watch(collection, resource_version="1", timeout=5))
        assert caught.value.gone


@pytest.mark.parametrize("guard", [None, lambda dummy: None])
def test_a_stopped_watch_is_not_continued(kube: Kube, guard: Callable[[str], None] | None) -> None:
    """The thread of a finished run must not watch the cluster of the next one."""
    stop, watches = threading.Event(), []

    def end_immediately(request: Request) -> Answer | None:
        if "watch=1" not in request.path:
            return None
        watches.append(request.path)
        if len(watches) == 2:
            stop.set()
        return Answer(200, b"")

    with kube.watched() as watched:
        watched.proxy.before = end_immediately
        client = through(kube, watched)
        client.guard = guard
        assert list(client.watch("/api/v1/nodes", resource_version="1", timeout=600, stop=stop)) == []
    assert len(watches) == 2


def test_warnings_are_kept(kube: Kube) -> None:
    namespace = kube.namespace()
    with kube.watched() as watched:
        watched.proxy.before = lambda request: Answer(200, b"{}", {"Warning": '299 - "this version is deprecated"'})
        client = through(kube, watched)
        client.get(f"/api/v1/namespaces/{namespace}")
        client.get(f"/api/v1/namespaces/{namespace}")
        assert client.warnings == ["this version is deprecated"]


def test_the_user_agent_names_the_collection(kube: Kube) -> None:
    with kube.watched() as watched:
        through(kube, watched).get("/version")
        assert watched.last().user_agent == "accel.gpu/test"
