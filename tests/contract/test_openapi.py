"""The OpenAPI document describes every answer, its examples are valid, and the reference lists every path."""

import re
from pathlib import Path
from typing import get_args

import pytest
from jsonschema_rs import Draft202012Validator

from taskloom.contract.experiments import ExperimentRequest
from taskloom.contract.runs import WaitingReason
from taskloom.contract.webhooks import DeliveryState
from taskloom.server import reference
from taskloom.server.descriptions import ALL, undescribed
from taskloom.server.errors import PROBLEM_TYPES
from taskloom.server.main import create_app
from taskloom.server.settings import Settings

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


@pytest.fixture(scope="module")
def openapi(tmp_path_factory):
    path = tmp_path_factory.mktemp("openapi") / "never-opened.db"
    return create_app(Settings(database_url=f"sqlite:///{path}")).openapi()


def operations(openapi):
    return [(path, method, op) for path, ops in openapi["paths"].items() for method, op in ops.items()]


def test_every_operation_says_what_it_does_and_how_it_fails(openapi):
    for path, method, operation in operations(openapi):
        assert operation["description"], (path, method)
        assert 5 <= len(operation["summary"]) <= 120, (path, method)
        for status, answer in operation["responses"].items():
            assert answer["description"], (path, method, status)
            if int(status) >= 400:
                assert list(answer["content"]) == ["application/problem+json"], (path, method, status)
        assert {"500", "503"} <= set(operation["responses"])


def answers(openapi):
    """Method, path, status and schema of every JSON answer that is not a problem."""
    for path, method, operation in operations(openapi):
        for status, answer in operation["responses"].items():
            if status < "400" and "application/json" in answer.get("content", {}):
                yield (method, path, status), answer["content"]["application/json"]["schema"]


def test_every_answer_is_an_object_of_a_named_type(openapi):
    # Files of any media type.
    bare = {"/api/v1/runs/{run_id}/artifacts/{name}", "/api/v1/runs/{run_id}/trace"}
    odd = [place for place, schema in answers(openapi) if list(schema) != ["$ref"] and place[1] not in bare]
    assert odd == []
    names = openapi["components"]["schemas"]
    assert [name for name in names if not re.fullmatch("([A-Z][a-z]+)+", name)] == []
    assert [name for _, ref in answers(openapi) for name in ref.get("$ref", "").split("/")[-1:]
            if name and names[name].get("type") != "object"] == []  # fmt: skip


def test_every_answer_has_an_example_that_its_schema_allows(openapi):
    found = 0
    for path, method, operation in operations(openapi):
        for status, answer in operation["responses"].items():
            media = answer.get("content", {}).get("application/json", {})
            if status < "300" and "$ref" in media.get("schema", {}):
                whole = {**media["schema"], "components": openapi["components"]}
                wrong = Draft202012Validator(whole).iter_errors(media["example"])
                problems = [f"{error.instance_path}: {error.message}" for error in wrong]
                assert not problems, (method, path, status, problems)
                found += 1
    assert found > 45


def test_every_tag_is_described(openapi):
    used = {tag for _, _, operation in operations(openapi) for tag in operation["tags"]}
    assert used == {tag["name"] for tag in openapi["tags"] if tag["description"]}


def test_operations_have_short_and_unique_names(openapi):
    names = [operation["operationId"] for _, _, operation in operations(openapi)]
    assert len(set(names)) == len(names)
    assert all(len(name) < 30 for name in names), names


def test_examples_of_requests_are_accepted(openapi):
    examples = openapi["components"]["schemas"]["ExperimentRequest"]["examples"]
    assert examples
    for example in examples:
        ExperimentRequest.model_validate(example)


def test_examples_of_problems_have_known_types(openapi):
    named = set(re.findall(r"'/problems/([a-z-]+)'", str(openapi)))
    assert named <= set(PROBLEM_TYPES)
    assert {"invalid-request", "lease-lost", "result-conflict"} <= named


def test_every_schema_has_an_example_or_a_description(openapi):
    for name, schema in openapi["components"]["schemas"].items():
        assert schema.get("description") or schema.get("examples"), name


def test_the_tables_of_operations_and_columns_are_up_to_date():
    page = (REFERENCE / "api.md").read_text()
    assert page == reference.render(page), "make it again: python -m taskloom.server.reference docs/reference/api.md"


def test_the_reference_names_what_a_run_waits_for_and_states_of_deliveries():
    text = (REFERENCE / "api.md").read_text()
    for name in (*get_args(WaitingReason), *get_args(DeliveryState)):
        assert f"`{name}`" in text


def test_the_reference_describes_every_setting():
    text = (REFERENCE / "api.md").read_text()
    for name in Settings.model_fields:
        assert f"`TASKLOOM_{name.upper()}`" in text


def test_the_reference_describes_every_problem_type():
    text = (REFERENCE / "problems.md").read_text()
    rows = dict(re.findall(r"^\| `/problems/([a-z-]+)` \| (\d+) \|", text, re.M))
    assert rows == {slug: str(kind.status) for slug, kind in PROBLEM_TYPES.items()}


@pytest.mark.parametrize("kind", PROBLEM_TYPES.values(), ids=list(PROBLEM_TYPES))
def test_problem_types_are_complete(kind):
    assert re.fullmatch("[a-z]+(-[a-z]+)*", kind.slug)
    assert 400 <= kind.status < 600
    assert kind.title
    assert kind.__doc__


def test_every_field_and_parameter_has_a_description_with_its_unit(openapi):
    assert undescribed(openapi) == []
    units = {"_s": "second", "_bytes": "byte", "_gflop_per_s": "GFLOP/s", "_gb_per_s": "GB/s", "_j": "joule"}
    for model, schema in openapi["components"]["schemas"].items():
        for name, field in schema.get("properties", {}).items():
            unit = next((units[end] for end in sorted(units, key=len, reverse=True) if name.endswith(end)), "")
            assert name.endswith("tokens_per_s") or unit in field["description"], f"{model}.{name}"


def test_no_meaning_is_left_over(openapi):
    """Each meaning describes a field or parameter of the document."""
    named = {f"{model}.{name}" for model, schema in openapi["components"]["schemas"].items()
             for name in schema.get("properties", {})}  # fmt: skip
    parameters = {each["name"] for _, _, operation in operations(openapi) for each in operation.get("parameters", ())}
    used = named | {each.split(".")[1] for each in named} | parameters
    assert set(ALL) - used == set()
