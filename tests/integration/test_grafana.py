"""Grafana's dashboards and Prometheus's alerts: the test sends each query, and the answer has the names that they
use."""

import csv
import io
import json
import re
from pathlib import Path

import httpx
import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from taskloom.provisioner import metrics as provisioner_metrics
from tests.support.present import present

BOARDS = Path(__file__).parents[2] / "deploy" / "grafana"
# Values that Grafana would insert for its variables.
FILLED = {
    "$__rate_interval": "5m", "${experiment}": "1", "${__from:date:iso}": "2020-01-01T00:00:00.000Z",
    "${__to:date:iso}": "2099-01-01T00:00:00.000Z",
}  # fmt: skip


def targets(name):
    board = json.loads((BOARDS / f"{name}.json").read_text())
    found = [(panel, target) for panel in board["panels"] for target in panel["targets"]]
    return [pytest.param(panel, target, id=f"{panel['title']} {target['refId']}") for panel, target in found]


def filled(text):
    for name, value in FILLED.items():
        text = text.replace(name, value)
    assert "$" not in text, text
    return text


@pytest.fixture(scope="module")
def server(file_api, make_result):
    """A server with an ended and a running experiment, a queued run, a slowdown and refused requests."""
    file_api.submit(
        axes={"scheduler": ["fork-join", "task"]}, base={"batch_slice": 1, "token_slice": 64}, repetitions=2,
        order="sequential", name="ended",
    )  # fmt: skip
    node = file_api.worker()
    for _ in range(4):
        lease = node.claim()
        node.beat(lease)
        node.upload(lease, make_result())
    file_api.submit(axes={"seed": [1, 2]}, name="under way")
    node.beat(node.claim())
    columns = "run_id, state, ratio, reason, raised_at, changed_at"
    file_api.sql(f"INSERT INTO alert ({columns}) VALUES (1, 'confirmed', 1.2, 'slow', 1, 2)")
    verdict = json.dumps({"sentence": "task is faster.", "verdict": "faster"})
    file_api.sql("UPDATE experiment SET verdict = :verdict WHERE id = 1", verdict=verdict)
    file_api.sql("UPDATE run SET started_at = finished_at - 5 WHERE finished_at IS NOT NULL")
    file_api.get("/runs/99", 404)
    return file_api


def names_in(value, path):
    """Values at a path of keys: one for each row that has the path."""
    for name in path.split("."):
        value = [row[name] for row in value if isinstance(row, dict) and name in row]
    return value


@pytest.mark.parametrize(("panel", "target"), targets("results"))
def test_every_query_of_results_finds_its_columns(server, panel, target):
    answer = server.http.get(filled(target["url"]))
    assert answer.status_code == 200, answer.text
    assert (target["source"], target["parser"]) == ("url", "backend")
    if target["type"] == "csv":
        assert answer.headers["content-type"].startswith("text/csv")
        rows = list(csv.DictReader(io.StringIO(answer.text)))
    else:
        found = answer.json()
        rows = found[target["root_selector"]] if target["root_selector"] else [found]
    assert rows, "nothing to show"
    for column in target["columns"]:
        values = [value for value in names_in(rows, column["selector"]) if value not in (None, "")]
        assert values or column["selector"] in ("flagged", "low", "high"), column
        if column["type"] == "number":
            assert all(isinstance(float(value), float) for value in values), column
        if column["type"] == "timestamp":
            assert all(re.match(r"\d{4}-\d\d-\d\dT", str(value)) for value in values), column
    fields = {column["text"] for column in target["columns"]}
    for step in panel.get("transformations", ()):
        assert set(step["options"]["fields"]) <= fields


def labels_of(scrape):
    """The labels of every series, by its name."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(scrape):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


class Names:
    """Names in an expression: metrics, labels in selectors, and labels of groups."""

    def __init__(self, expression):
        self.metrics, self.labels, self.grouped, self.selected = [], set(), set(), {}
        promql_parser.walk(promql_parser.parse(expression), self.visit)

    def visit(self, node):
        if isinstance(node, promql_parser.VectorSelector):
            self.metrics.append(node.name)
            labels = {matcher.name for matcher in node.matchers.matchers}
            self.labels |= labels
            self.selected.setdefault(node.name, set()).update(labels)
        elif isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            self.grouped |= set(node.modifier.labels)


@pytest.mark.parametrize(("panel", "target"), targets("server"))
def test_every_expression_of_the_servers_names_what_is_scraped(server, panel, target):
    known = labels_of(server.http.get("/metrics").text)
    names = Names(filled(target["expr"]))
    assert names.metrics
    for metric in names.metrics:
        assert metric in known, metric
        assert names.labels | names.grouped <= known[metric], metric
    shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    assert shown <= names.grouped, "a legend of labels that the expression has added up"
    assert panel["fieldConfig"]["defaults"]["unit"]


def alerts():
    groups = yaml.safe_load((BOARDS.parent / "prometheus/alerts.yml").read_text())["groups"]
    return [pytest.param(rule, id=rule["alert"]) for group in groups for rule in group["rules"]]


@pytest.fixture(scope="module")
def scraped(server):
    """Labels of every series of a server and of a provisioner."""
    provisioner = provisioner_metrics.Metrics(0)
    provisioner.submissions.labels("a", "refused").inc()
    found = labels_of(server.http.get("/metrics").text)
    return found | labels_of(httpx.get(present(provisioner.url)).text)


@pytest.mark.parametrize("rule", alerts())
def test_every_alert_names_what_is_scraped(scraped, rule):
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("warning", "critical")
    names = Names(rule["expr"])
    assert names.metrics
    for metric in names.metrics:
        assert metric in scraped, metric
        assert names.selected[metric] <= scraped[metric], metric
    every = {"instance"}.union(*(scraped[metric] for metric in names.metrics))  # Prometheus adds the instance
    assert names.grouped <= every
    shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert shown <= names.grouped


def test_an_expression_that_names_what_is_not_there_is_found(server):
    known = labels_of(server.http.get("/metrics").text)
    names = Names('sum by (cheese) (rate(taskloom_cheese_total{moon="full"}[5m]))')
    assert (names.metrics, names.labels, names.grouped) == (["taskloom_cheese_total"], {"moon"}, {"cheese"})
    assert "taskloom_cheese_total" not in known


@pytest.mark.parametrize("name", ["server", "results"])
def test_a_dashboard_can_be_imported(name):
    board = json.loads((BOARDS / f"{name}.json").read_text())
    (source,) = board["__inputs"]
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["datasource"] == {"type": source["pluginId"], "uid": f"${{{source['name']}}}"}
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
