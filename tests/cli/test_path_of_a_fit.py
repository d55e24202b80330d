"""``bothworlds fit log.csv``: the log is scanned once, and few files lie between the command and the number."""

from __future__ import annotations

import sys
from pathlib import Path

import bothworlds
from bothworlds.clicks import generate
from tests.commands import answer

PACKAGE = Path(bothworlds.__file__).parent
STEPS = ("run", "_arrays", "_newton")  # statements of DuckDB, arrays of their results, and the fit
ENTRANCE = {"cli/common.py", "kernels.py"}  # decorators of all commands and kernels
MOST = 8


class Steps:
    """The files on the stack whenever a step is taken, and the statements that are run."""

    def __init__(self):
        self.files, self.statements = set(), []

    def __call__(self, frame, event, argument):
        if event != "call" or frame.f_code.co_name not in STEPS or not self._inside(frame):
            return
        if (sql := frame.f_locals.get("sql")) and frame.f_code.co_filename.endswith("/database.py"):
            self.statements.append(sql)
        while frame is not None:
            if self._inside(frame):
                self.files.add(Path(frame.f_code.co_filename).relative_to(PACKAGE).as_posix())
            frame = frame.f_back

    @staticmethod
    def _inside(frame):
        return frame.f_code.co_filename.startswith(f"{PACKAGE}/")


def test_a_fit_scans_its_log_once_and_passes_at_most_eight_files(tmp_path):
    log, steps = generate(tmp_path / "log.csv", pages=300), Steps()
    sys.setprofile(steps)
    try:
        answer("fit", log)
    finally:
        sys.setprofile(None)
    scans = [sql for sql in steps.statements if "read_csv" in sql and not sql.startswith("DESCRIBE")]
    assert len(scans) == 1
    assert scans[0].startswith("CREATE TABLE rows AS")
    passed = steps.files - ENTRANCE
    assert {"cli/fit.py", "clicks/log.py", "statistics/log_linear.py"} < passed
    assert len(passed) <= MOST, sorted(passed)
