# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""openstacksdk's reader of clouds' configurations, without the rest of the SDK.

`import openstack` loads the classes of every service there is, of which nothing here is used, since it knows no node groups: a second
of processor time and more, for each host of each task. What reads the configuration needs few of them.
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
def _without_its_start() -> t.Iterator[None]:
    """In here the package's modules can be imported, and its own start is not run; whoever imports it afterwards has it whole."""
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
    with _without_its_start():
        from openstack import exceptions
        from openstack.config import OpenStackConfig
    from keystoneauth1 import exceptions as keystone
except ImportError:
    IMPORT_ERROR = traceback.format_exc()
else:
    # What reading a configuration raises.
    UNUSABLE = (exceptions.SDKException, keystone.ClientException, TypeError, ValueError)


def enable_logging(path: str | None, level: str) -> None:
    """Let openstacksdk write what it does to a file (it leaves secrets out); for that it is imported whole."""
    if path:
        import openstack

        debug = level == "DEBUG"
        openstack.enable_logging(debug=debug, http_debug=debug, path=path, stream=None)
