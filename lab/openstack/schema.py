# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creates Magnum's tables, in Magnum's own environment: `python -m lab.openstack.schema CONFIG`.

SQLite does not support Magnum's migrations, which alter constraints; so the tables are created from the current models.
"""

from __future__ import annotations

import sys

import magnum.conf
from magnum.db import migration
from magnum.db.sqlalchemy import models
from oslo_db.sqlalchemy import enginefacade

if __name__ == "__main__":
    magnum.conf.CONF([], project="magnum", default_config_files=[sys.argv[1]])
    models.Base.metadata.create_all(enginefacade.writer.get_engine())
    migration.stamp("head")
