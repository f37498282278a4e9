# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make bench`: compares the modules with kubectl, kubernetes.core and openstack in a lab; writes docs/performance.md."""
