# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Ansible side that every module has, whatever service it talks to: progress, and the one place where errors become failures."""

from __future__ import annotations

import functools
import os
import typing as t
import uuid
from urllib.parse import quote

from ansible.module_utils.basic import AnsibleModule

from ..catalog.names import VERSION
from .errors import ConnectionProblem, InvalidOptions, PartialFailure, ReleaseRefused, ServiceError
from .progress import INVENTORY_HOST_ENV, RUN_ID_ENV, Progress
from .wait import WaitTimeout

ArgumentSpec = dict[str, dict[str, t.Any]]
Work = t.Callable[[t.Any], dict[str, t.Any]]


def merge_specs(*parts: ArgumentSpec) -> ArgumentSpec:
    """One argument spec of several; of an option that two of them have, the later one's attributes win."""
    spec: ArgumentSpec = {}
    for part in parts:
        spec.update({name: {**spec.get(name, {}), **option} for name, option in part.items()})
    return spec


class BaseModule(AnsibleModule):
    """A module of this collection."""

    params: dict[str, t.Any]
    # The failures that are foreseen, and the code that each has in the result.
    failures: t.ClassVar[dict[type[Exception], str]] = {
        InvalidOptions: "invalid",
        ConnectionProblem: "connection",
        WaitTimeout: "timeout",
        PartialFailure: "partial",
        ReleaseRefused: "release_refused",
    }

    def __init__(self, argument_spec: ArgumentSpec, **kwargs: t.Any) -> None:
        """Support check mode, unless told otherwise."""
        kwargs.setdefault("supports_check_mode", True)
        super().__init__(argument_spec=argument_spec, **kwargs)

    @functools.cached_property
    def progress(self) -> Progress:
        """Where the module tells what it does."""
        return Progress.from_env()

    @functools.cached_property
    def run_id(self) -> str:
        """The same for all modules of one ansible-playbook run, and for no other."""
        return os.environ.get(RUN_ID_ENV) or f"module-{uuid.uuid4().hex[:12]}"

    @property
    def inventory_hostname(self) -> str:
        """The inventory host that the task runs for; empty where no action plugin of this collection has started the module."""
        return os.environ.get(INVENTORY_HOST_ENV, "")

    @property
    def user_agent(self) -> str:
        """As what the module shows itself to services."""
        host = f"/{quote(self.inventory_hostname, safe='')}" if self.inventory_hostname else ""
        return f"accel.gpu/{VERSION} {self._name.rpartition('.')[2]} run/{self.run_id}{host}"

    def secrets(self) -> set[str]:
        """Texts among the options that must not be printed, beside the options that are no_log as a whole."""
        return set()

    def shown_params(self) -> dict[str, t.Any]:
        """The options as logs and results (at -vvv) may have them."""
        return dict(self.params)

    def _log_invocation(self) -> None:
        """Ansible writes every option to the system's log before the module can say which are secret."""
        given = self.params
        self.params = self._for_printing()
        try:
            super()._log_invocation()
        finally:
            self.params = given

    def exit_json(self, **kwargs: t.Any) -> t.NoReturn:
        """Ansible's, with the options as they may be shown."""
        kwargs.setdefault("invocation", {"module_args": self._for_printing()})
        super().exit_json(**kwargs)
        raise SystemExit(0)

    def fail_json(self, msg: str, **kwargs: t.Any) -> t.NoReturn:
        """Ansible's, with the options as they may be shown."""
        kwargs.setdefault("invocation", {"module_args": self._for_printing()})
        super().fail_json(msg, **kwargs)
        raise SystemExit(1)

    def _for_printing(self) -> dict[str, t.Any]:
        self.no_log_values.update(self.secrets())
        return self.shown_params()

    def explained(self, error: ServiceError) -> str:
        """What a service's error means to the user, and what to do; the client's own words unless a module knows better."""
        return error.message

    def warnings_seen(self) -> t.Iterable[str]:
        """What the services have warned of meanwhile."""
        return ()

    def run(self, work: Work) -> t.NoReturn:
        """Do the module's work and exit with its result (`changed`, `diff`, one dict under its noun), or fail.

        An exception's attribute `partial`, where it has one, goes into the failure.
        """
        try:
            result = work(self)
        except ServiceError as error:
            details = {"reason": error.reason, "method": error.method, "path": error.path}
            self._fail(error, self.explained(error), error.code, details)
        except Exception as error:
            code = next((code for kind, code in self.failures.items() if isinstance(error, kind)), None)
            if code is None:
                raise
            problems = getattr(error, "problems", None)
            self._fail(error, str(error), code, {"problems": list(problems)} if problems is not None else None)
        self._warn()
        if not self._diff:
            result.pop("diff", None)
        self.exit_json(**result)
        raise SystemExit(0)

    def _fail(self, error: Exception, msg: str, code: int | str, details: t.Any = None) -> t.NoReturn:
        self._warn()
        partial = dict(getattr(error, "partial", None) or {})
        if not self._diff:
            partial.pop("diff", None)
        self.fail_json(msg=msg, code=code, details=details or {}, **partial)
        raise SystemExit(1)

    def _warn(self) -> None:
        for text in self.warnings_seen():
            self.warn(text)
