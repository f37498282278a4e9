# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fake of VNG Cloud's Kubernetes service (VKS), its vServer lookups and its IAM; its contract names its sources."""

from __future__ import annotations
