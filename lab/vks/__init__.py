# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A double of VNG Cloud's Kubernetes service (VKS), its vServer look-ups and its IAM, by a contract that names its sources."""

from __future__ import annotations
