"""The notebook of docs/examples, run against a server with data: it prints the verdicts and draws the API's figures."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "examples" / "fork-join-or-task.ipynb"
DRAWN = """
import json
lines = {each.get_label(): each[0].get_xydata().tolist() for each in plt.gca().containers}
plt.savefig("drawn.png")
print(json.dumps(lines))
"""


@pytest.fixture(scope="module")
def cells():
    book = json.loads(NOTEBOOK.read_text())
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    return book["cells"]


def test_the_notebook_answers_fork_join_or_task(api, make_result, cells, tmp_path):
    axes = {"scheduler": ["fork-join", "task"], "threads": [1, 2]}
    api.submit(axes=axes, repetitions=8, name="fork-join or task?", base={"model": "tiny"})
    node = api.worker()
    for i in range(32):
        lease = node.claim()
        spec = lease["spec"]
        s = {"fork-join": 1.0, "task": 0.8}[spec["scheduler"]] / spec["threads"] + 5 * i % 7 * 1e-4
        node.upload(lease, make_result([9, s, s], scheduler=spec["scheduler"], threads=spec["threads"]))
    program = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    command = [sys.executable, "-c", program + DRAWN]
    environment = {"TASKLOOM_SERVER": str(api.http.base_url), "MPLBACKEND": "Agg", "MPLCONFIGDIR": str(tmp_path)}
    done = subprocess.run(
        command, cwd=tmp_path, text=True, capture_output=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    *lines, drawn = done.stdout.splitlines()
    assert [line.partition(", ")[0] for line in lines] == [
        "task against fork-join on 1 threads: faster", "task against fork-join on 2 threads: faster",
    ]  # fmt: skip
    rows = api.get("/experiments/1/variants")["rows"]
    expected = {(row["settings"]["scheduler"], row["settings"]["threads"]): row["median_step_s"] for row in rows}
    found = {(name, x): y for name, points in json.loads(drawn).items() for x, y in points}
    assert found == expected
    assert (tmp_path / "drawn.png").stat().st_size > 5000


def test_the_notebook_is_short_and_has_no_outputs(cells):
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert sum(bool(line.strip()) for cell in code for line in cell["source"]) <= 10
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
