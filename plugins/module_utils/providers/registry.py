# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All providers of node groups: the one place where a cloud is added.

A provider is one package here, with definition.py (its ProviderDefinition) and inventory.py (its sources for the inventory plugin, which
is imported only when an inventory names the provider), one entry below, its modules, and the file tasks/KEY.yml of the role nodegroups.
"""

from __future__ import annotations

import typing as t

from .magnum.definition import MAGNUM
from .vks.definition import VKS

if t.TYPE_CHECKING:
    from .definition import ProviderDefinition

PROVIDERS: dict[str, ProviderDefinition] = {provider.key: provider for provider in (MAGNUM, VKS)}
