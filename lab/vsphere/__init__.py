# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A vCenter with vGPU hosts: the simulator's inventory and users, images of RHCOS, and the machines that OpenShift creates there."""
