"""Exports of every format agree with lists and samples, also over several pages."""

import contextlib
import csv
import html
import io
import json
import math
import re
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy
import pandas
import polars
import pyarrow.ipc
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from gpt2core.spec.errors import ConfigError
from taskloom import Client, Experiment
from taskloom.cli import main
from taskloom.contract.experiments import ExperimentRequest
from taskloom.errors import BadRequest, FrameLibraryMissing
from taskloom.server.read.exports import experiments, formats, tables
from tests.support.exchanges import exchanged
from tests.support.present import present

pytestmark = pytest.mark.both_databases
ROOT = Path(__file__).parents[2]


@pytest.fixture
def done(api, make_result, monkeypatch):
    """Four runs of two variants, three of them timed. Exports read two runs at a time."""
    monkeypatch.setattr(tables, "RUNS_AT_ONCE", 2)
    monkeypatch.setattr(tables, "RESULTS_AT_ONCE", 2)
    monkeypatch.setattr(formats, "ROWS_AT_ONCE", 3)
    monkeypatch.setattr(formats, "ROWS_OF_A_GROUP", 3)
    axes = {"scheduler": ["fork-join", "task"]}
    api.submit(axes=axes, repetitions=2, name='a, "b"', order="sequential", base={"model": "tiny"})
    node = api.worker()
    for i in range(3):
        lease = node.claim()
        node.beat(lease)
        node.upload(lease, make_result([9.0, 0.5 + i, 0.25], losses=[3, 2, 1 + i]))
    lease = node.claim()
    node.upload(lease, error={"slug": "boom", "detail": 'it "broke",\nbadly'})
    api.sql("UPDATE run SET flagged_steps = 1 WHERE id = 2")
    return api


def exported(api, table, form, **query):
    answer = api.http.get(f"/api/v1/exports/{table}", params={"format": form, **query})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].partition(";")[0] == formats.MEDIA_TYPES[form]
    assert answer.headers["content-disposition"].endswith(f'{table}.{form}"')
    return answer.content


def rows_of(form, content):
    if form == "csv":
        return list(csv.DictReader(io.StringIO(content.decode())))
    if form == "ndjson":
        return [json.loads(line) for line in content.splitlines()]
    if form == "parquet":
        return pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist()
    return pyarrow.ipc.open_file(io.BytesIO(content)).read_all().to_pylist()


@pytest.mark.parametrize("table", sorted(tables.TABLES))
def test_every_format_holds_the_same_rows(done, table):
    if table == "tuning_trials":
        done.submit(base={"model": "tiny"}, space={"threads": [1, 2]}, tune={"runs": 2})
    rows = {form: rows_of(form, exported(done, table, form)) for form in formats.MEDIA_TYPES}
    assert rows["ndjson"]
    assert list(rows["csv"][0]) == list(rows["ndjson"][0]) == list(tables.TABLES[table].columns)
    assert [{n: "" if v is None else str(v) for n, v in row.items()} for row in rows["ndjson"]] == rows["csv"]
    for form in ("parquet", "arrow"):
        plain = [{n: v.isoformat() if hasattr(v, "isoformat") else v for n, v in row.items()} for row in rows[form]]
        assert plain == rows["ndjson"]


def test_runs_are_those_of_the_list(done):
    rows = rows_of("ndjson", exported(done, "runs", "ndjson", sort="-id"))
    listed = done.get("/runs", sort="-id")["items"]
    for row, run in zip(rows, listed, strict=True):
        assert (row["run_id"], row["state"], row["median_step_s"]) == (run["id"], run["state"], run["median_step_s"])
        assert (row["model"], row["scheduler"]) == ("tiny", run["variant"]["scheduler"])
        assert row["duration_s"] == run["duration_s"]
    assert (rows[0]["error_slug"], rows[0]["error_detail"]) == ("boom", 'it "broke",\nbadly')
    spec = done.get("/runs/1")["spec"]
    typed = ("seq", "precision", "lr")
    assert {name: rows[-1][name] for name in typed} == {name: spec[name] for name in typed}
    assert rows[-1]["allow_oversubscription"] is False


def test_runs_have_what_their_results_measured(done):
    done.http.patch("/api/v1/experiments/1", json={"tags": ["night", "base"]}).raise_for_status()
    rows = rows_of("ndjson", exported(done, "runs", "ndjson"))
    assert {(row["experiment_name"], row["tags"]) for row in rows} == {('a, "b"', "base night")}
    (used,) = {row["parallel_efficiency"] for row in rows if row["median_step_s"] is not None}
    shown = done.get("/analysis/efficiency", experiment_id=1)["rows"]
    assert [row["efficiency"]["parallel"] for row in shown] == [pytest.approx(used)] * 2
    assert [rows[3][name] for name in ("parallel_efficiency", "mfu", "foreign_share", "peak_rss_bytes")] == [None] * 4
    assert {row["exposed_s"] for row in rows} == {None}  # one rank
    chosen = exported(done, "runs", "csv", columns="run_id,parallel_efficiency").decode().split()
    assert chosen == ["run_id,parallel_efficiency", *(f"{i},{used}" for i in (1, 2, 3)), "4,"]


def test_a_run_of_several_ranks_has_the_mean_of_their_exchanges(api, make_result):
    api.submit(base={"model": "tiny"})
    communication = exchanged((0.02, 0.4, 0.1), (0.04, 0.2, 0.05))
    node = api.worker()
    node.upload(node.claim(), {**make_result([9.0, 0.5, 0.5]), "communication": communication})
    (row,) = rows_of("ndjson", exported(api, "runs", "ndjson"))
    assert [row["in_flight_s"], row["exposed_s"]] == [pytest.approx(0.3), pytest.approx(0.075)]


def test_steps_are_those_of_the_samples(done):
    rows = rows_of("ndjson", exported(done, "steps", "ndjson"))
    for run_id in (1, 2, 3):
        samples = done.get(f"/runs/{run_id}/samples")["items"]
        mine = [row for row in rows if row["run_id"] == run_id]
        for row, sample in zip(mine, samples, strict=True):
            assert {name: row[name] for name in ("step", "warmup", "loss", "step_s")} == {
                name: sample[name] for name in ("step", "warmup", "loss", "step_s")
            }
            assert row["backward_s"] == sample["phase_s"]["backward"]
    assert len(rows) == 9


def test_ops_variants_and_histories_are_those_of_the_results(done):
    ops = rows_of("ndjson", exported(done, "ops", "ndjson"))
    raw = done.get("/runs/1/result")["ops"]
    mine = [{name: row[name] for name in raw[0]} for row in ops if row["run_id"] == 1]
    assert mine == raw
    variants = rows_of("ndjson", exported(done, "variants", "ndjson"))
    table = done.get("/experiments/1/variants")["rows"]
    assert [(v["scheduler"], v["median_step_s"], v["succeeded"]) for v in variants] == [
        (row["settings"]["scheduler"], row["median_step_s"], row["succeeded"]) for row in table
    ]
    history = rows_of("ndjson", exported(done, "history", "ndjson"))
    assert [row["run_id"] for row in history] == [1, 2, 3]
    assert history[0]["series"] == history[1]["series"] != history[2]["series"]


def test_an_export_takes_filters_and_columns(done):
    content = exported(done, "runs", "csv", columns="run_id, scheduler", filter="scheduler=task", state="succeeded")
    assert content == b"run_id,scheduler\n3,task\n"
    assert exported(done, "steps", "csv", columns="run_id", flagged="true") == b"run_id\n2\n2\n2\n"
    assert exported(done, "variants", "csv", columns="runs", experiment_id=9) == b"runs\n"


def test_what_there_is_not_is_named(done):
    problem = done.get("/exports/runs", 422, columns="run_id,cheese")
    assert (problem["errors"][0]["field"], problem["errors"][0]["value"]) == ("columns", "cheese")
    assert done.get("/exports/runs", 422, columns="")["errors"][0]["field"] == "columns"
    assert done.get("/exports/cheese", 422)["type"] == "/problems/invalid-request"
    assert done.get("/exports/runs", 422, format="xls")["errors"][0]["field"] == "format"


def test_a_server_without_pyarrow_says_so(done, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    problem = done.get("/exports/runs", 422, format="parquet")
    assert "install taskloom[exports] on the server" in problem["errors"][0]["accepted"]


def test_the_client_gives_frames_of_either_library(done, monkeypatch):
    with Client(str(done.http.base_url)) as client:
        frame = client.frame("steps", experiment_id=1, filter={"scheduler": "fork-join"})
        assert isinstance(frame, pandas.DataFrame)
        assert (len(frame), frame["step_s"].sum(), str(frame["warmup"].dtype)) == (6, 20.5, "bool")
        frame = client.frame("runs", "polars", columns=["run_id", "created_at"])
        assert isinstance(frame, polars.DataFrame)
        assert (frame["run_id"].to_list(), frame["created_at"].dtype.is_temporal()) == ([1, 2, 3, 4], True)
        empty = client.frame("runs", state="quarantined", columns="run_id,node")
        assert (len(empty), list(empty.columns)) == (0, ["run_id", "node"])
        with pytest.raises(ConfigError, match="library = 'excel' is not accepted: pandas or polars"):
            client.frame("runs", "excel")
        with pytest.raises(BadRequest, match="cheese"):
            client.frame("runs", columns="cheese")
        monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
        with pytest.raises(FrameLibraryMissing, match="a data frame needs pandas or polars: pip install pandas"):
            client.frame("runs")


def test_the_tutorials_block_for_python_prints_the_scaling(done, monkeypatch, capsys):
    [block] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/tutorial.md").read_text(), re.DOTALL)
    monkeypatch.setenv("TASKLOOM_SERVER", str(done.http.base_url))
    exec(block, {})
    rows = done.get("/analysis/scaling", experiment_id=1)["rows"]
    printed = [[row["scheduler"], row["threads"], row["step_s"]["median"], row["speedup"]] for row in rows]
    assert capsys.readouterr().out == "".join(" ".join(map(str, line)) + "\n" for line in printed)
    assert printed


def test_the_client_writes_an_export_whole_or_not_at_all(done, tmp_path):
    with Client(str(done.http.base_url)) as client:
        client.export("runs", str(tmp_path / "runs.parquet"), columns="run_id")
        assert pandas.read_parquet(tmp_path / "runs.parquet")["run_id"].tolist() == [1, 2, 3, 4]
        with pytest.raises(BadRequest):
            client.export("runs", tmp_path / "other.csv", columns="cheese")
        with pytest.raises(ConfigError, match="format = 'other"):
            client.export("runs", tmp_path / "other.xls")
    assert [path.name for path in tmp_path.glob("*.*") if "other" in path.name or "partial" in path.name] == []


def test_the_client_waits_and_hears(done):
    with Client(str(done.http.base_url)) as client:
        assert client.wait(1, timeout_s=20).state == "finished"
        events = list(client.events("experiment:1", "run:1"))
        assert {(event.topic, event.event) for event in events} == {
            (topic, event) for topic in ("experiment:1", "run:1") for event in ("changed", "ended")
        }
        done.submit()
        with pytest.raises(TimeoutError, match=r"experiment 2 has not ended within 0\.5 s"):
            client.wait(2, timeout_s=0.5)
        assert [row.run_id for row in client.queue()] == [5]
        assert (client.whoami().actor, client.overview().runs.queued) == ("local", 1)
        assert [row.runs for row in client.variants(1)] == [2, 2]
        assert [e.id for e in client.experiments(state="active")] == [2]
        assert [r.id for r in client.runs(sort="-id", filter={"scheduler": "task"}, experiment_id=1)] == [4, 3]


def test_an_experiment_of_the_client_waits_has_a_verdict_and_gives_frames(done):
    with Client(str(done.http.base_url)) as client:
        experiment = client.experiment(1).wait(timeout_s=20)
        assert isinstance(experiment, Experiment)
        verdict = present(experiment.verdict)
        assert verdict.verdict == "refused"  # losses differ
        assert experiment.refresh().judged().verdict == verdict
        assert len(experiment.frame()) == 2
        steps = experiment.frame("steps", "polars", filter={"scheduler": "fork-join"})
        assert steps["run_id"].to_list() == [1, 1, 1, 2, 2, 2]
        states = "finished, 4 runs (1 failed and 3 succeeded)"
        assert repr(experiment) == str(experiment) == f'Experiment 1 (a, "b"): {states}. {verdict.sentence}'
        link = f'<a href="{client.server}/ui/experiment?id=1">Experiment 1</a> (a, &quot;b&quot;): {states}. '
        assert experiment._repr_html_() == f"{link}{html.escape(verdict.sentence)}"  # without a ratio no plot
        assert json.loads(experiment.model_dump_json()).keys() == done.get("/experiments/1").keys()


def test_experiments_are_those_of_the_list_with_their_verdicts(done, monkeypatch, tmp_path):
    monkeypatch.setattr(experiments, "AT_ONCE", 2)
    done.submit(name="=1+1", tags=["b", "a"], commit="abcdef0", base={"model": "tiny"})
    done.submit(name="last", base={"threads": 2})
    judged = {"verdict": "faster", "a": "x", "b": "y", "ratio": 1.5, "low": 1.25, "high": 2.0, "sentence": "y."}
    done.sql(f"UPDATE experiment SET verdict = '{json.dumps(judged)}' WHERE id = 1")
    with Client(str(done.http.base_url)) as client:
        listed = done.get("/experiments", sort="name")["items"]
        rows = rows_of("ndjson", exported(done, "experiments", "ndjson", sort="name"))
        for row, item in zip(rows, listed, strict=True):
            assert row["experiment_id"] == item["id"]
            same = ("name", "state", "runs", "submitter", "purpose", "flagged_runs", "commit", "branch", "group")
            assert {name: row[name] for name in same} == {name: item[name] for name in same}
            assert row["created_at"][:19] == item["created_at"][:19]
            assert (row["tags"], json.loads(row["by_state"])) == (" ".join(item["tags"]), item["by_state"])
            assert {name: row[name] for name in judged} == (judged if item["id"] == 1 else dict.fromkeys(judged))
        asked = {"state": "active", "filter": "threads = 2", "columns": "name"}
        assert list(client.frame("experiments", "pandas", **asked).name) == ["last"]
    text = exported(done, "experiments", "csv", tag="a", columns="name,tags,commit,ratio").decode()
    assert text == "name,tags,commit,ratio\n'=1+1,a b,abcdef0,\n"
    done.get("/exports/experiments", 422, node="n1")
    (error,) = done.get("/exports/experiments", 422, columns="cheese")["errors"]
    assert error["accepted"].startswith("columns among experiment_id, commit, ")
    options = ("--filter", "runs = 1", "--sort", "-name", "--columns", "name", "--server", str(done.http.base_url))
    written = CliRunner().invoke(main, ["export", "experiments", "-o", str(tmp_path / "made.csv"), *options])
    assert (written.exit_code, (tmp_path / "made.csv").read_text()) == (0, "name\nlast\n'=1+1\n")


def test_a_notebook_shows_the_ratio_with_its_interval_over_the_noise_floor(done):
    with Client(str(done.http.base_url)) as client:
        experiment = client.experiment(1).wait(timeout_s=20)
    figures = {"ratio": 1.05, "low": 1.02, "high": 1.08, "verdict": "faster", "a": "<b>", "b": "&amp;"}
    verdict = present(experiment.verdict).model_copy(update=figures)
    page = experiment.model_copy(update={"verdict": verdict})._repr_html_()
    assert "var(" not in page
    svg = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    texts = [str(each.text) for each in svg.findall(".//{*}text")]
    assert {"<b> time / &amp; time", "&amp; is faster \u2192", "step time"} <= {*texts}
    band, dot = (next(each for each in svg.findall(f".//{{*}}{kind}") if each.find("{*}title") is not None)
                 for kind in ("rect", "circle"))  # fmt: skip
    titles = [each.findtext("{*}title") for each in (band, dot)]
    assert titles == ["noise floor 1.0%", "step time: 1.050, faster"]
    # On the figure's scale: the line at 1, the band from 1 / 1.01 to 1.01, the ratio and the ends of its interval.
    one, interval = [each.attrib["points"] for each in svg.findall(".//{*}polyline")][:2]
    (at_1, _), (low, high) = ([float(point.split(",")[0]) for point in line.split()] for line in (one, interval))
    unit = (high - low) / (1.08 - 1.02)
    left = float(band.attrib["x"])
    places = [low, float(dot.attrib["cx"]), left, left + float(band.attrib["width"])]
    assert [1 + (each - at_1) / unit for each in places] == pytest.approx([1.02, 1.05, 1 / 1.01, 1.01], abs=1e-3)


def test_the_client_takes_a_request_as_a_model_a_mapping_or_keywords(done):
    fields: dict[str, Any] = {"base": {"threads": 2}, "axes": {"seed": [1, 2]}, "tags": ["night"]}
    with Client(str(done.http.base_url)) as client:
        forms = (
            client.submit(ExperimentRequest.model_validate(fields)), client.submit(fields), client.submit(**fields),
            client.submit({"base": {"threads": 2}}, axes={"seed": numpy.array([1, 2])}, tags=("night",)),
        )  # fmt: skip
        assert [made.request for made in forms] == [fields] * 4
        assert client.plan(fields).runs == client.plan(**fields).runs == 2
        for wrong, said in (
            ({"base": {"threads": 0}}, "base.threads = 0 is not accepted"),
            ({"repetition": 2}, "did you mean repetitions?"),
            ("nightly.toml", "request = 'nightly.toml' is not accepted"),
            ({"base": {"threads": 2, "batch": 4}, "axes": {"batch_slice": [8]}}, "batch_slice = 8 is not accepted"),
        ):
            with pytest.raises((ConfigError, BadRequest)) as refused:
                client.submit(wrong)  # type: ignore[arg-type]
            assert said in str(refused.value)
        with pytest.raises(ConfigError, match="repetitions = -1 is not accepted"):
            client.extend_experiment(forms[0].id, -1)


def test_the_command_line_filters_sorts_and_exports(done, tmp_path):
    def taskloom(*args, code=0):
        given = [*args, "--server", str(done.http.base_url), "--json"]
        answer = CliRunner().invoke(main, given, catch_exceptions=False)
        assert answer.exit_code == code, answer.output
        return json.loads(answer.output) if code == 0 else answer.output

    asked = ("runs", "list", "--filter", "scheduler=task", "--since", "7d", "--sort", "-finished", "--columns")
    assert taskloom(*asked, "id,threads,scheduler") == [
        {"id": 4, "threads": 1, "scheduler": "task"}, {"id": 3, "threads": 1, "scheduler": "task"},
    ]  # fmt: skip
    assert [run["id"] for run in taskloom("runs", "list")] == [4, 3, 2, 1]
    for sort in ("scheduler", "-median_step"):
        runs = taskloom("runs", "list", "--sort", sort, "--experiment", "1")
        name = "median_step_s" if sort == "-median_step" else sort
        values = [{**run, **run["settings"]}[name] for run in runs]
        having = [value for value in values if value is not None]
        assert having == values[: len(having)] == sorted(having, reverse=sort.startswith("-"))
    assert [run["id"] for run in taskloom("runs", "list", "--experiment", "1", "--clean")] == [1, 3]
    assert [run["id"] for run in taskloom("runs", "list", "--state", "failed", "--state", "queued")] == [4]
    assert "no 'cheese'; it has " in taskloom("runs", "list", "--columns", "cheese", code=2)
    assert "columns are id, experiment_id" in taskloom("runs", "list", "--sort", "cheese", code=2)
    assert [e["id"] for e in taskloom("experiments", "list", "--sort", "-name")] == [1]
    assert [e["id"] for e in taskloom("experiments", "list", "--state", "finished", "--since", "1h")] == [1]
    assert taskloom("experiments", "list", "--name", "other") == []
    file = tmp_path / "steps.feather"
    assert taskloom("export", "steps", "--filter", "scheduler=task", "-o", str(file))["format"] == "arrow"
    assert pandas.read_feather(file)["run_id"].unique().tolist() == [3]
    assert "format = 'x.xls' is not accepted" in taskloom("export", "runs", "-o", str(tmp_path / "x.xls"), code=2)
    assert "No such file" in taskloom("export", "runs", "-o", str(tmp_path / "none" / "x.csv"), code=2)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1+1", "＠SUM(A1)"])
def test_text_of_a_worker_is_no_formula(api, make_result, text):
    api.submit(repetitions=2)
    node = api.worker(node=text)
    node.upload(node.claim(), make_result())
    node.upload(node.claim(), error={"slug": text, "detail": text})
    cells = csv.DictReader(io.StringIO(exported(api, "runs", "csv").decode(), newline=""))
    for rows, shown in ((cells, f"'{text}"), (rows_of("ndjson", exported(api, "runs", "ndjson")), text)):
        by_state = {row["state"]: row for row in rows}
        assert by_state["succeeded"]["node"] == shown
        assert [by_state["failed"][name] for name in ("error_slug", "error_detail")] == [shown, shown]


def test_text_of_a_submitter_is_no_formula(api, make_result):
    named = {"commit": "=1+1", "branch": "@SUM(A1)", "version": "-1"}
    api.submit(name="+1", tags=["night"], **named)
    node = api.worker()
    node.upload(node.claim(), make_result())
    for table in ("runs", "steps", "variants"):
        for row in csv.DictReader(io.StringIO(exported(api, table, "csv").decode(), newline="")):
            assert not any(cell.startswith(formats.FORMULA) and not is_number(cell) for cell in row.values()), row
            if table == "runs":
                assert {row[name] for name in named} == {f"'{text}" for text in named.values()}


def is_number(cell):
    with contextlib.suppress(ValueError):
        return math.isfinite(float(cell))
    return False


def test_an_export_without_a_temporary_folder_is_refused_and_the_log_says_why(api, monkeypatch, caplog, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    refused = api.http.get("/api/v1/exports/runs")
    assert (refused.status_code, refused.headers.get("retry-after")) == (503, "5"), refused.text
    assert refused.json()["type"] == "/problems/out-of-resources"
    assert "temporary folder" in refused.json()["detail"]
    reason = f"(TMPDIR): [Errno 2] No such file or directory: '{tmp_path}/missing"
    assert any(reason in each for each in caplog.messages), caplog.messages
    monkeypatch.undo()
    assert api.http.get("/api/v1/exports/runs").status_code == 200
