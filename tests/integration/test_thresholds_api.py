"""Thresholds of series: set, shown with the history, and judged when an experiment ends."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from taskloom.cli import main
from tests.support.patience import until

pytestmark = pytest.mark.both_databases
SERIES = "/analysis/history/series"
LIMITS = {"reference_s": 1.0, "lower": -10.0, "upper": 5.0}
NOISE = (1.0, 1.004, 0.996, 1.002)


def measure(api: Any, make_result: Any, level: float, **request: Any) -> Any:
    """An experiment of four runs of one configuration, at a level of step times; it has been searched for alerts."""
    made = api.submit(base={"token_slice": 64, "batch_slice": 1}, repetitions=4, **request)
    node = api.worker(labels={f"build-{build[:16]}": "kept" for build in request.get("builds", ())})
    for noise in NOISE * max(1, len(request.get("builds", ()))):
        node.upload(node.claim(), make_result([9, noise * level, noise * level]))
    unsearched = "finished_at IS NULL OR alerts_at IS NULL OR alerts_at < finished_at"
    until(lambda: not api.sql(f"SELECT id FROM experiment WHERE {unsearched}"))
    return made


@pytest.fixture
def watching(start_server: Any) -> Any:
    return start_server(poll_s=0.05, webhook_targets="http://127.0.0.1:9/")


def alerts(api: Any, **query: Any) -> list[tuple[Any, ...]]:
    items = api.get("/analysis/alerts", **query)["items"]
    return [(each["kind"], each["run_id"], each["state"], round(each["ratio"], 2)) for each in items]


def test_a_threshold_is_set_replaced_shown_with_the_history_and_deleted(api, make_result):
    api.submit(base={"token_slice": 64, "batch_slice": 1})
    node = api.worker()
    node.upload(node.claim(), make_result([9, 1, 1]))
    path = f"{SERIES}/1/threshold"
    addresses = [f"/api/v1{SERIES}/1/changes", "/api/v1/analysis/history", "/api/v1/analysis/history?run_id=1"]

    def threshold(answer: Any) -> Any:
        return answer.get("items", [answer])[0]["threshold"]

    def etags() -> list[str]:
        return [api.http.get(address).headers["etag"] for address in addresses]

    seen = [etags()]
    assert [threshold(api.http.get(address).json()) for address in addresses] == [None] * 3
    assert api.get(SERIES, threshold=True)["items"] == []
    for limits in (LIMITS, {"reference_s": 2.0, "lower": None, "upper": 1.0}):
        made = api.put(path, limits)
        assert (made["set_by"], {name: made[name] for name in limits}) == ("local", limits)
        assert [threshold(api.http.get(address).json()) for address in addresses] == [limits] * 3
        assert api.get(f"{SERIES}/1")["threshold"] == made == api.get(SERIES, threshold=True)["items"][0]["threshold"]
        assert api.get(SERIES, threshold=False)["items"] == []
        seen.append(etags())
    assert api.http.delete(f"/api/v1{path}").status_code == 204
    seen.append(etags())
    for before, after in itertools.pairwise(seen):
        assert not {*before} & {*after}
    assert [threshold(api.http.get(address).json()) for address in addresses] == [None] * 3
    assert "has no threshold" in api.http.delete(f"/api/v1{path}").json()["detail"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"reference_s": 0, "upper": 5}, "reference_s"),
        ({"reference_s": 1, "upper": -5}, "upper"),
        ({"reference_s": 1, "lower": 5}, "lower"),
        ({"reference_s": 1, "lower": -101}, "lower"),
        ({"reference_s": 1}, "upper"),
        ({"upper": 5}, "reference_s"),
    ],
)
def test_a_bad_threshold_names_the_field(empty_api, given, field):
    (error,) = empty_api.http.put(f"/api/v1{SERIES}/1/threshold", json=given).json()["errors"]
    assert error["field"] == field
    assert error["accepted"]


def test_a_threshold_is_of_a_series_that_exists(empty_api):
    assert empty_api.put(f"{SERIES}/9/threshold", LIMITS, 404)["detail"] == "there is no series 9"


def test_an_alert_is_raised_once_follows_its_series_and_is_sent(watching, make_result):
    api = watching
    api.post("/webhooks", {"url": "http://127.0.0.1:9/", "events": ["alert"]}, 201)
    measure(api, make_result, 1.0)
    api.put(f"{SERIES}/1/threshold", LIMITS)
    measure(api, make_result, 1.02)
    assert alerts(api) == []
    measure(api, make_result, 1.2)
    assert alerts(api, state="above") == [("threshold", 9, "above", 1.2)]
    (alert,) = [each for each in api.get("/analysis/alerts")["items"] if each["kind"] == "threshold"]
    assert "+20.1 % from the reference of 1 s; -10 % to +5 % is allowed" in alert["reason"]
    assert api.get("/overview")["alerts"]["above"] == 1
    assert [each["kind"] for each in api.get(f"{SERIES}/1")["alerts"]] == ["threshold"]
    assert api.get(f"{SERIES}/1/points")["items"][8]["alert"] is None  # of slowdowns alone
    measure(api, make_result, 1.3)  # the same alert
    assert alerts(api, state="above") == [("threshold", 9, "above", 1.3)]
    measure(api, make_result, 0.8)
    assert alerts(api, state="below") == [("threshold", 9, "below", 0.8)]
    measure(api, make_result, 1.0)
    assert alerts(api, state="within") == [("threshold", 9, "within", 1.0)]
    assert [each for each in api.get("/overview")["newest_alerts"] if each["kind"] == "threshold"] == []
    measure(api, make_result, 1.2)  # a new one
    assert alerts(api, state="above") == [("threshold", 25, "above", 1.2)]
    sent = [json.loads(body)["alert"] for (body,) in api.sql("SELECT body FROM webhook_delivery ORDER BY id")]
    said = [(each["run_id"], each["state"]) for each in sent if each["kind"] == "threshold"]
    assert said == [(9, "above"), (9, "below"), (9, "within"), (25, "above")]


def test_an_alert_of_a_threshold_that_is_deleted_is_dismissed(watching, make_result):
    api = watching
    measure(api, make_result, 1.0)
    api.put(f"{SERIES}/1/threshold", {"reference_s": 0.5, "upper": 5})
    assert alerts(api) == [("threshold", 1, "above", 2.0)]
    api.http.delete(f"/api/v1{SERIES}/1/threshold")
    (alert,) = api.get("/analysis/alerts")["items"]
    assert (alert["state"], alert["reason"]) == ("dismissed", "local deleted the threshold")
    measure(api, make_result, 1.0)
    assert alerts(api) == [("threshold", 1, "dismissed", 2.0)]


def test_the_newest_experiment_is_judged_when_a_threshold_is_set(watching, make_result):
    api = watching
    api.post("/webhooks", {"url": "http://127.0.0.1:9/", "events": ["alert"]}, 201)
    api.put(f"{SERIES}/1/threshold", LIMITS, 404)
    measure(api, make_result, 2.0)
    measure(api, make_result, 1.2)
    measure(api, make_result, 3.0, builds=["a" * 64, "b" * 64], confirms=5)  # in the series, but not judged
    api.sql("DELETE FROM alert")
    api.submit(base={"token_slice": 64, "batch_slice": 1}, repetitions=2)  # not ended
    node = api.worker()
    node.upload(node.claim(), make_result([9, 4, 4]))

    def judged(upper: float) -> list[tuple[Any, ...]]:
        api.put(f"{SERIES}/1/threshold", {"reference_s": 1.0, "upper": upper})
        return alerts(api)

    assert judged(5) == judged(6) == [("threshold", 5, "above", 1.2)]
    assert judged(30) == [("threshold", 5, "within", 1.2)]
    assert judged(5) == [("threshold", 5, "above", 1.2)]
    sent = [json.loads(body)["alert"]["state"] for (body,) in api.sql("SELECT body FROM webhook_delivery ORDER BY id")]
    assert sent[-3:] == ["above", "within", "above"]


@pytest.mark.parametrize("more", [{}, {"confirms": 1}])
def test_runs_of_named_builds_are_not_judged(watching, make_result, more):
    api = watching
    measure(api, make_result, 1.0)
    api.put(f"{SERIES}/1/threshold", LIMITS)
    measure(api, make_result, 3.0, builds=["a" * 64, "b" * 64], **more)
    assert alerts(api) == []
    assert len(api.get(f"{SERIES}/1/points")["items"]) == (12 if more else 4)


def test_a_slowdown_and_a_threshold_may_have_the_same_run(watching, make_result):
    api = watching
    for _ in range(2):
        measure(api, make_result, 1.0)
    api.put(f"{SERIES}/1/threshold", LIMITS)
    measure(api, make_result, 1.2)
    assert sorted(alerts(api)) == [("change", 9, "suspected", 1.2), ("threshold", 9, "above", 1.2)]


def test_the_command_sets_lists_loads_and_deletes_thresholds(api, make_result, tmp_path):
    api.submit(base={"token_slice": 64, "batch_slice": 1}, axes={"scheduler": ["fork-join", "task"]})
    node = api.worker()
    for _ in range(2):
        lease = node.claim()
        node.upload(lease, make_result([9, 1, 1], scheduler=lease["spec"]["scheduler"]))

    def command(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(main, ["thresholds", *arguments, "--server", str(api.http.base_url)])
        assert done.exit_code == code, done.output
        return done.output

    def thresholds() -> dict[int, Any]:
        return {each["id"]: each["threshold"]["upper"] for each in json.loads(command("list", "--json"))}

    command("set", "--run", "1", "--reference", "1", "--upper", "5")
    assert list(thresholds().values()) == [5.0]
    assert "anything to +5 %" in command("list")
    file = Path(tmp_path / "thresholds.toml")
    file.write_text("[[threshold]]\nreference = 1\nupper = 7\n[[threshold]]\nreference = 1\nupper = 8\n"
                    'settings = {scheduler = "task"}\n')  # fmt: skip
    assert "3 thresholds set" in command("load", str(file))
    task = {each["config"]["scheduler"]: each["id"] for each in api.get(SERIES)["items"]}["task"]
    assert sorted(thresholds().values()) == [7.0, 8.0]
    assert thresholds()[task] == 8.0
    command("delete", "--series", str(task))
    assert list(thresholds().values()) == [7.0]
    shown = CliRunner().invoke(main, ["experiments", "history", "--server", str(api.http.base_url)]).output
    assert "threshold: 1 s; anything to +7 % is allowed" in shown
    file.write_text("[[threshold]]\nreference = 1\nupper = 7\nsettings = {threads = 64}\n")
    assert "no series has 64 threads" in command("load", str(file), code=1)
    assert "either --series or --run" in command("delete", code=2)
    assert "in no series" in command("set", "--run", "77", "--reference", "1", "--upper", "5", code=2)
