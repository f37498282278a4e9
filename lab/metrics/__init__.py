# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The license metric of dcgm-exporter, and the network path from the API server to it, as a part of a lab."""
