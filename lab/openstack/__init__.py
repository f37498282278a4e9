# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part `openstack` of a lab: the real Keystone, Nova API, Glance and Magnum, with the lab's own cluster driver."""
