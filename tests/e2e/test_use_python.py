"""docs/how-to/use-python.md, followed literally against a server and a worker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT, House

PAGE = (ROOT / "docs" / "how-to" / "use-python.md").read_text()


@pytest.mark.slow
def test_the_page_leads_from_submission_to_a_plot(home: House, tmp_path: Path) -> None:
    home.start_worker()
    program = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.S))
    program = program.replace("print(experiment.url)", "print(repr(experiment), experiment._repr_html_())")
    surroundings = {"TASKLOOM_SERVER": home.url, "MPLBACKEND": "Agg", "MPLCONFIGDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, text=True, capture_output=True, check=False,
        env={**os.environ, **surroundings},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Experiment 1 (fork-join or task?): active, 24 runs (24 queued) <a href=")
    assert lines[1].startswith("base.threads = 0 is not accepted: ")
    assert lines[2] == "base.thread = 1 is not accepted: no such field; did you mean threads?"
    assert lines[3].startswith("batch_slice = 8 is not accepted: ")
    assert "finished {'succeeded': 24}" in lines
    assert (tmp_path / "step-times.png").stat().st_size > 5000
