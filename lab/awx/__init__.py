# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for AWX 24.6.1: its rules, the part of its API that awx.awx uses, and jobs that run as AWX runs them."""
