# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Base of all modules: progress, masking of secrets, and the conversion of errors to failures."""

from __future__ import annotations

import functools
import os
import typing as t
import uuid
from urllib.parse import quote

from ansible.module_utils.basic import AnsibleModule

from ..catalog.names import VERSION
from ..catalog.secrets import NOT_SHOWN
from .errors import InvalidOptions, ModuleFailure, NotConfirmed, ServiceError
from .messages import printable
from .waits import INVENTORY_HOST_ENV, PROGRESS_ENV, RUN_ID_ENV, RUN_URL_ENV, Progress

ArgumentSpec = dict[str, dict[str, t.Any]]
# The parts of a successful result that Ansible shows as text. All other parts are data for later tasks.
_SHOWN_AS_TEXT = ("msg", "diff", "warnings", "deprecations")
Work = t.Callable[[t.Any], dict[str, t.Any]]

# The option of modules that call require_confirmation().
CONFIRM: ArgumentSpec = {"confirm": {"type": "list", "elements": "str", "default": []}}


def merge_specs(*parts: ArgumentSpec) -> ArgumentSpec:
    """Merge several argument specs; attributes of an option in a later spec override earlier ones."""
    spec: ArgumentSpec = {}
    for part in parts:
        spec.update({name: {**spec.get(name, {}), **option} for name, option in part.items()})
    return spec


def _known_options(shown: t.Mapping[str, t.Any], spec: ArgumentSpec) -> dict[str, t.Any]:
    """The options to show. The value of an unknown option, such as a misspelled one, is replaced, because it may be a secret."""
    by_name = {name: option for key, option in spec.items() for name in (key, *option.get("aliases", ()))}
    known = {}
    for name, value in shown.items():
        option = by_name.get(name)
        if option is None and not name.startswith("_ansible_"):
            value = NOT_SHOWN
        elif option and isinstance(value, dict) and option.get("options"):
            value = _known_options(value, option["options"])
        elif option and isinstance(value, list) and option.get("options"):
            value = [_known_options(item, option["options"]) if isinstance(item, dict) else item for item in value]
        known[name] = value
    return known


class BaseModule(AnsibleModule):
    """The base class of this collection's modules."""

    params: dict[str, t.Any]

    def __init__(self, argument_spec: ArgumentSpec, **kwargs: t.Any) -> None:
        """Support check mode by default."""
        kwargs.setdefault("supports_check_mode", True)
        super().__init__(argument_spec=argument_spec, **kwargs)

    @functools.cached_property
    def progress(self) -> Progress:
        """The progress reporter of the module."""
        return Progress(os.environ.get(PROGRESS_ENV))

    @functools.cached_property
    def run_id(self) -> str:
        """An id of the ansible-playbook run that all its modules share."""
        return os.environ.get(RUN_ID_ENV) or f"module-{uuid.uuid4().hex[:12]}"

    @property
    def run_url(self) -> str:
        """The page of this run; empty if it has none."""
        return os.environ.get(RUN_URL_ENV, "")

    @property
    def inventory_hostname(self) -> str:
        """The inventory host of the task; empty if none of this collection's action plugins has started the module."""
        return os.environ.get(INVENTORY_HOST_ENV, "")

    @property
    def user_agent(self) -> str:
        """The User-Agent of all requests: version, module, run and inventory host."""
        host = f"/{quote(self.inventory_hostname, safe='')}" if self.inventory_hostname else ""
        return f"accel.gpu/{VERSION} {self._name.rpartition('.')[2]} run/{self.run_id}{host}"

    def secrets(self) -> set[str]:
        """Strings in the options that must not be printed, in addition to options with no_log."""
        return set()

    def shown_params(self) -> dict[str, t.Any]:
        """The options to show in logs and, at -vvv, in results."""
        return dict(self.params)

    def _log_invocation(self) -> None:
        """Remove secrets before Ansible writes all options to the system's log, and escape characters that the log cannot encode."""
        given = self.params
        self.params = {
            name: value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
            for name, value in self._for_printing().items()
        }
        try:
            super()._log_invocation()
        finally:
            self.params = given

    def exit_json(self, **kwargs: t.Any) -> t.NoReturn:
        """Call Ansible's method with shown_params() as the invocation; text for the terminal cannot change it."""
        kwargs.setdefault("invocation", {"module_args": self._for_printing()})
        kwargs.update({key: printable(kwargs[key]) for key in _SHOWN_AS_TEXT if key in kwargs})
        super().exit_json(**kwargs)
        raise SystemExit(0)

    def fail_json(self, msg: str, **kwargs: t.Any) -> t.NoReturn:
        """Call Ansible's method with shown_params() as the invocation, and without characters that could change the terminal."""
        kwargs.setdefault("invocation", {"module_args": self._for_printing()})
        super().fail_json(printable(msg), **printable(kwargs))
        raise SystemExit(1)

    def warn(self, warning: str, **kwargs: t.Any) -> None:
        """Call Ansible's method without characters that could change the terminal."""
        super().warn(printable(warning), **kwargs)

    def _for_printing(self) -> dict[str, t.Any]:
        self.no_log_values.update(self.secrets())
        return _known_options(self.shown_params(), self.argument_spec)

    def explain_error(self, error: ServiceError) -> str:
        """The message for an error of a service; subclasses add details of the connection."""
        return error.message

    def name_to_confirm(self) -> str:
        """The name of the cluster that the option `confirm` must contain; empty if the options do not name the cluster."""
        return ""

    def require_confirmation(self, consequence: str, details: str = "") -> None:
        """Raise NotConfirmed unless the option `confirm` (CONFIRM) contains the name of the cluster; in check mode, only show a warning.

        consequence, details: sentences that describe the deletion; the warning in check mode omits the details, which the diff shows. A module calls
        this method immediately before it deletes something, so that no way of starting a task can omit it, and not if there is nothing to delete.
        """
        name, given = self.name_to_confirm(), [str(item).strip() for item in self.params["confirm"]]
        if name and name in given:
            return
        if not name:
            required = "set gpu_cluster.name, which identifies the cluster, and repeat the name in the option confirm"
            if self.check_mode:
                self.warn(f"{consequence} A run without --check requires a confirmation: {required}.")
                return
            raise InvalidOptions(
                [" ".join(filter(None, (consequence, details, f"Nothing was done. To confirm, {required}.")))]
            )
        if self.check_mode:
            self.warn(
                f"{consequence} A run without --check requires the confirmation -e gpu_confirm={name} (option confirm of the module)."
            )
            return
        others = f"; gpu_confirm is {', '.join(given)}" if any(given) else ""
        remedy = (
            f"Nothing was done. To confirm, add -e gpu_confirm={name} (option confirm of the module; separate the names of several clusters with "
            f"commas){others}."
        )
        raise NotConfirmed(" ".join(filter(None, (consequence, details, remedy))))

    def has_written(self) -> bool:
        """Whether a service has accepted a write; a failure reports this as `changed` unless the error's partial result contains it."""
        return False

    def service_warnings(self) -> t.Iterable[str]:
        """The warnings that the services have sent so far."""
        return ()

    def run(self, work: Work) -> t.NoReturn:
        """Run the work of the module, and exit with its result (`changed`, `diff`, and one dict under the noun of the module), or fail."""
        try:
            result = work(self)
        except ServiceError as error:
            details = {"reason": error.reason, "method": error.method, "path": error.path}
            self._fail(error, self.explain_error(error), details)
        except ModuleFailure as error:
            problems = getattr(error, "problems", None)
            self._fail(error, str(error), {} if problems is None else {"problems": problems})
        self.exit_json(**self._finished(result))

    def _fail(self, error: ServiceError | ModuleFailure, msg: str, details: dict[str, t.Any]) -> t.NoReturn:
        """Fail with the message, with the notes of the error (BaseException.add_note()) in additional lines, and with the result so far."""
        msg = "\n".join([msg, *getattr(error, "__notes__", ())])
        partial = {"changed": self.has_written(), **error.partial}
        if self.check_mode:
            # The rest of the result predicts changes, but nothing was changed, and a run without check mode would also fail.
            partial = {**partial, "changed": False}
        self.fail_json(msg=msg, code=error.code, details=details, **self._finished(partial))

    def _finished(self, result: dict[str, t.Any]) -> dict[str, t.Any]:
        """The result, with a diff only if one is requested; also prints the warnings of the services."""
        for text in self.service_warnings():
            self.warn(text)
        return result if self._diff else {key: value for key, value in result.items() if key != "diff"}
