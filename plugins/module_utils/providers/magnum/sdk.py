# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration reader of openstacksdk, without the rest of the SDK.

`import openstack` loads the classes of all services, of which none is used here, since the SDK has no node groups: 0.9 s of processor
time, and 0.4 s without them, for each host of each task. The import of a module with its Ansible code takes 0.65 s in total.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import traceback
import typing as t

__all__ = ["IMPORT_ERROR", "UNUSABLE", "OpenStackConfig", "enable_logging"]

_PACKAGE = "openstack"

IMPORT_ERROR: str | None = None


@contextlib.contextmanager
def _without_package_code() -> t.Iterator[None]:
    """Imports submodules without running openstack/__init__.py; a later `import openstack` loads the whole package."""
    spec = None if _PACKAGE in sys.modules else importlib.util.find_spec(_PACKAGE)
    if spec is None:
        yield
        return
    sys.modules[_PACKAGE] = importlib.util.module_from_spec(spec)
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
            del sys.modules[name]


try:
    try:
        with _without_package_code():
            from openstack import exceptions
            from openstack.config import OpenStackConfig
    except (ImportError, AttributeError):
        # A release whose submodules need openstack/__init__.py.
        from openstack import exceptions
        from openstack.config import OpenStackConfig
    from keystoneauth1 import exceptions as keystone
except ImportError:
    IMPORT_ERROR = traceback.format_exc()
else:
    # The exceptions of reading a configuration.
    UNUSABLE = (exceptions.SDKException, keystone.ClientException, TypeError, ValueError)


def enable_logging(path: str | None, level: str) -> None:
    """Let openstacksdk, imported as a whole for that, log to a file; it masks secrets."""
    if path:
        import openstack

        debug = level == "DEBUG"
        openstack.enable_logging(debug=debug, http_debug=debug, path=path, stream=None)
