# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make docs`: the files that are generated from the catalog, the schema, and the documentation of the modules and roles."""
