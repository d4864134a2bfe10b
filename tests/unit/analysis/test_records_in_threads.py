# SPDX-License-Identifier: Apache-2.0
"""Several captures become tables at once: the libraries are ready for threads before the first of them begins."""

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import importlib, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import_module = importlib.import_module

def slowly(name, package=None):  # whoever imports NumPy at the same time is in the midst of it, too
    module = import_module(name, package)
    if name == "numpy":
        time.sleep(0.3)
    return module

importlib.import_module = slowly

from atoll_analysis.tables.tables import scan_records
from atoll_analysis.tables.packet_records import RECORD

def to_table(number):
    records, table = (Path(sys.argv[1]) / f"{number}.{suffix}" for suffix in ("bin", "parquet"))
    records.write_bytes(bytes(1000 * RECORD.itemsize))
    scan_records(records).sink_parquet(table)

with ThreadPoolExecutor(2) as pool:
    list(pool.map(to_table, range(2)))
"""


def test_two_captures_become_tables_side_by_side_in_a_process_that_has_made_none(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == ["0.parquet", "1.parquet"]
