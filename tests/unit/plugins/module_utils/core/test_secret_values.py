# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets in Helm values are found by the names of their fields and by their shapes; what only names a secret is none."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.types import find_secrets, secret_texts, without_secrets
from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import validate


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
PEM = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIBkg\n-----END EC PRIVATE KEY-----\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUTf0n9S9m3zJc5YcX\n-----END CERTIFICATE-----\n"
AUTHS = '{"auths": {"nvcr.io": {"auth": "JG9hdXRodG9rZW46bnZhcGk="}}}'
HEX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
RANDOM = "vU8xQ2rT7kLmZ0pWn4Yb6HsJ3dFg"

SECRETS: list[tuple[str, Any, str]] = [
    # what, the document, the path at which the secret is
    ("password", {"a": {"password": "x"}}, "a.password"),
    ("camel case", {"adminPassword": "x"}, "adminPassword"),
    ("a number", {"grafana-admin-pwd": 1234}, "['grafana-admin-pwd']"),
    ("snake case", {"NGC_API_KEY": "x"}, "NGC_API_KEY"),
    ("token", {"licensingConfig": {"token": "x"}}, "licensingConfig.token"),
    ("client secret", {"clientSecret": "abc"}, "clientSecret"),
    ("private key", {"tls": {"privateKey": "abc"}}, "tls.privateKey"),
    ("plural", {"passwords": {"alice": "x"}}, "passwords.alice"),
    ("list", {"tokens": ["x"]}, "tokens[0]"),
    ("data of a Secret", {"extraObjects": [{"kind": "Secret", "stringData": {"a": "hunter2"}}]}, "extraObjects[0].stringData.a"),
    ("variable", {"driver": {"env": [{"name": "A", "value": "1"}, {"name": "REPO_PASSWORD", "value": "x"}]}}, "driver.env[1].value"),
    ("argument", {"args": ["--verbose", "--token", "x"]}, "args[2]"),
    ("argument in one", {"args": ["--password=x"]}, "args[0]"),
    ("line of a file", {"config": "[repo]\nname=x\npassword=hunter2\n"}, "config"),
    ("line of YAML", {"config": "a: 1\nb:\n  apiKey: x\n"}, "config"),
    ("no name of a Secret", {"secret": "S3cr3t!"}, "secret"),
    ("JWT anywhere", {"driver": {"licensingConfig": {"comment": JWT}}}, "driver.licensingConfig.comment"),
    ("JWT in text", {"config": f"x\ny {JWT}\n"}, "config"),
    ("PEM", {"ca": PEM}, "ca"),
    ("PEM in base64", {"data": encoded(PEM)}, "data"),
    ("address", {"proxy": "http://alice:hunter2@proxy:3128"}, "proxy"),
    ("address in an argument", {"args": ["-e", "HTTPS_PROXY=https://a:b@c"]}, "args[1]"),
    ("docker", {"x": AUTHS}, "x"),
    ("docker in base64", {"x": encoded(AUTHS)}, "x"),
    ("docker's own name", {".dockerconfigjson": "e30="}, "['.dockerconfigjson']"),
    ("docker as a map", {"auths": {"r": {"auth": encoded("user:pass")}}}, "auths.r.auth"),
    ("NGC", {"note": "nvapi-" + "a1B2" * 12}, "note"),
    ("OpenShift", {"note": "sha256~" + "Zx9_" * 11}, "note"),
    ("GitHub", {"repo": {"url": "ghp_" + "a1B2" * 9}}, "repo.url"),
    ("Hugging Face", {"note": "hf_" + "aBcD" * 8}, "note"),
    ("age", {"note": "AGE-SECRET-KEY-1" + "QPZRY9X8" * 7}, "note"),
    ("header", {"headers": ["Authorization: Bearer " + "a1B2" * 6]}, "headers[0]"),
    ("random, telling", {"licence": RANDOM}, "licence"),
    ("hexadecimal, telling", {"hashKey2": {"key": "x"}, "sessionKeyValue": HEX}, "sessionKeyValue"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "path"), [case[1:] for case in SECRETS], ids=[case[0] for case in SECRETS])
def test_a_secret_is_found_at_its_path(document: Any, path: str) -> None:
    (actual,) = find_secrets(document)
    assert actual.path == path
    assert actual.value not in actual.description
    assert actual.value not in repr(actual)
    kept, left_out = without_secrets(document)
    assert left_out == [path]
    assert list(find_secrets(kept)) == []


PLAIN: list[tuple[str, Any]] = [
    ("names of Secrets", {"imagePullSecrets": ["ngc"], "secretName": "a", "pullSecret": "ngc", "existingSecret": "my-secret"}),
    ("objects that name one", {"imagePullSecrets": [{"name": "ngc-registry"}]}),
    ("references", {"tokenSecretRef": {"name": "a", "key": "token"}, "passwordFile": "/run/x", "secretEnv": "driver-env"}),
    ("valueFrom", {"env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "a", "key": "password"}}}]}),
    ("switches", {"token": True, "passwordless": True, "automountServiceAccountToken": False, "tokens": {"enabled": True}}),
    ("empty", {"password": "", "token": None, "credentials": {}}),
    ("numbers", {"tokenExpirationSeconds": 3600, "tokenTTL": "1h", "maxTokens": 3, "token": 3}),
    ("variables of a program", {"password": "$(DB_PASSWORD)", "url": "http://a:$(PASS)@b", "token": "${TOKEN}"}),
    ("a path", {"token": "/var/run/secrets/token", "GOOGLE_APPLICATION_CREDENTIALS": "/etc/key.json"}),
    ("key of an entry", {"passwordSecretKey": "password", "secretKey": "tls.key"}),
    ("affinity", {"matchExpressions": [{"key": "nvidia.com/gpu.deploy.operands", "operator": "Exists"}]}),
    ("a taint", {"tolerations": [{"key": "node-role.kubernetes.io/control-plane", "value": "", "effect": "NoSchedule"}]}),
    ("images", {"image": "nvcr.io/nvidia/driver@sha256:" + HEX, "version": "sha256:" + HEX, "digest": HEX}),
    ("a certificate", {"caBundle": encoded(CERTIFICATE), "cert": CERTIFICATE, "publicKey": RANDOM}),
    ("addresses", {"repo": "https://git@host/x", "url": "ssh://git@host:22/x", "proxy": "http://proxy:3128"}),
    ("words", {"licenseType": "NVIDIA-Virtual-Compute-Server-And-More", "keyword": "a-long-hyphenated-name-of-something"}),
    ("a file", {"config": "version: v1\nflags:\n  migStrategy: none\nsharing:\n  timeSlicing: {}\n"}),
    ("licensing", {"driver": {"licensingConfig": {"secretName": "licensing", "nlsEnabled": True, "configMapName": ""}}}),
    ("authors", {"author": "me", "authorization": {"mode": "RBAC"}, "compass": "north", "bypass": "yes"}),
    ("PCI ids", {"deviceClassWhitelist": ["0300", "0302"], "keys": ["vendor", "class"]}),
]  # fmt: skip


@pytest.mark.parametrize("document", [case[1] for case in PLAIN], ids=[case[0] for case in PLAIN])
def test_what_only_names_a_secret_is_none(document: Any) -> None:
    assert list(find_secrets(document)) == []
    assert without_secrets(document) == (document, [])


def test_of_a_variable_without_its_value_nothing_stays() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "A_TOKEN", "value": "x"}]
    assert without_secrets({"env": env}) == ({"env": env[:1]}, ["env[1].value"])


def test_the_texts_are_for_masking() -> None:
    assert secret_texts({"a": {"password": "one"}, "b": [{"token": "two"}]}) == {"one", "two"}


MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    # the path below gpu_cluster, the document, what to do instead
    ("operator.values.driver.licensingConfig.token", {"driver": {"licensingConfig": {"token": "S3CRET"}}}, "driver.licensingConfig.secretName"),
    ("operator.values.driver.env[0].value", {"driver": {"env": [{"name": "X_TOKEN", "value": "S3CRET"}]}}, "gpu_cluster.operator.driver.secret_env"),
    ("operator.values.x", {"x": AUTHS.replace("JG9hdXRodG9rZW46bnZhcGk=", "S3CRET")}, "gpu_cluster.operator.image_pull_secrets"),
    ("operator.values.toolkit.password", {"toolkit": {"password": "S3CRET"}}, "secretKeyRef"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "values", "remedy"), MISTAKES)
def test_a_secret_in_values_is_refused_with_what_to_do_and_never_shown(
    path: str, values: dict[str, Any], remedy: str
) -> None:
    (problem,) = validate({"name": "c", "operator": {"values": values}}, {}, [])
    assert problem.startswith(f"gpu_cluster.{path}: ")
    assert remedy in problem
    assert "S3CRET" not in problem


def test_values_of_nfd_are_refused_too() -> None:
    (problem,) = validate({"name": "c", "nfd": {"values": {"master": {"token": "S3CRET"}}}}, {}, [])
    assert problem.startswith("gpu_cluster.nfd.values.master.token: ")
    assert "S3CRET" not in problem


@pytest.mark.parametrize(
    ("cluster", "path"),
    [
        ({"operator": {"chart_repo": "https://a:S3CRET@charts"}}, "operator.chart_repo"),
        ({"operator": {"chart": "oci://a:S3CRET@registry/chart"}}, "operator.chart"),
        ({"nfd": {"chart": "https://a:S3CRET@charts/nfd.tgz"}}, "nfd.chart"),
    ],
)
def test_an_address_with_a_password_would_stand_on_helms_command_line(cluster: dict[str, Any], path: str) -> None:
    problems = validate({"name": "c", **cluster}, {}, [])
    assert [problem for problem in problems if problem.startswith(f"gpu_cluster.{path}: ") and "helm" in problem]
    assert "S3CRET" not in str(problems)


@pytest.mark.parametrize("value", [JWT, PEM, "http://alice:hunter2@proxy", "nvapi-" + "a1B2" * 12])
def test_no_message_shows_a_secret_that_stands_in_the_wrong_place(value: str) -> None:
    problems = validate({"name": "c", "operator": {"version": value, "registry": value}}, {}, [{"name": value}])
    assert problems
    assert value[:20] not in str(problems)


def test_a_reboot_command_holds_no_password() -> None:
    command = ["ipmitool", "-H", "{node}", "--password", "S3CRET", "chassis", "power", "reset"]
    pool = {"name": "p", "match": {"model": "T4"}, "rollout": {"reboot": {"command": command}}}
    (problem,) = validate({"name": "c"}, {}, [pool])
    assert problem.startswith("gpu_pools[0].rollout.reboot.command[4]: ")
    assert "S3CRET" not in problem
