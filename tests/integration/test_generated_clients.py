"""Clients generated from the OpenAPI document are complete and read every answer."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest

from taskloom.server.main import create_app
from taskloom.server.settings import Settings
from tests.support.route_requests import OPERATIONS, request_of

TYPESCRIPT = ("--package=openapi-typescript@7.13.0", "--package=typescript@5.9.3")
GOOD = ("200", "201")
FREE = {"artifacts_show", "artifacts_trace"}  # files of any media type


@pytest.fixture(scope="module")
def document(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("document") / "openapi.json"
    app = create_app(Settings(database_url=f"sqlite:///{file.parent / 'never-opened.db'}"))
    file.write_text(json.dumps(app.openapi()))
    return file


def answers(document: Path) -> list[str]:
    """Operations whose answers are JSON."""
    return [
        operation["operationId"]
        for methods in json.loads(document.read_text())["paths"].values()
        for operation in methods.values()
        if operation["operationId"] not in FREE
        and any("application/json" in operation["responses"].get(good, {}).get("content", {}) for good in GOOD)
    ]


@pytest.fixture(scope="module")
def python_client(document: Path) -> typing.Iterator[Path]:
    """The package that openapi-python-client generates, importable."""
    folder = document.parent / "generated_client"
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--path", str(document), "--output-path",
               str(folder), "--meta", "none", "--fail-on-warning"]  # fmt: skip
    bin_folder = Path(sys.executable).parent  # it formats the generated code with our ruff
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PATH": f"{bin_folder}:/usr/bin:/bin"}
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert "warning" not in printed.lower(), printed
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder.parent)
        yield folder


def answer_types(python_client: Path, name: str) -> list[Any]:
    """Return types of an operation's generated function, without problems and without `Any`, which means no body."""
    (file,) = python_client.glob(f"api/*/{name}.py")
    module = importlib.import_module(f"generated_client.api.{file.parent.name}.{name}")
    returned = typing.get_type_hints(module.sync)["return"]
    kinds = typing.get_args(returned) or (returned,)
    return [kind for kind in kinds if kind.__name__ not in ("NoneType", "Any", "Problem")]


def test_a_generated_python_client_has_a_type_for_every_answer(python_client, document):
    names = answers(document)
    assert len(names) > 40
    untyped = {
        name: found
        for name in names
        for found in [answer_types(python_client, name)]
        if not found or not all(kind.__module__.startswith("generated_client.models") for kind in found)
    }
    assert untyped == {}


def test_a_generated_python_client_reads_what_the_server_answers(python_client, document, house):
    house.use(house.tokens["admin"])
    read = []
    for name in answers(document):
        status, address, _ = request_of(name)
        if OPERATIONS[name][1].methods != {"GET"} or status != 200:
            continue
        answer = house.http.get(address)
        assert answer.status_code == 200, name
        (kind,) = answer_types(python_client, name)
        said = answer.json()
        assert instants_in_one_way(kind.from_dict(said).to_dict()) == instants_in_one_way(said), name
        read.append(name)
    assert len(read) > 30


def instants_in_one_way(value: object) -> object:
    """The same JSON with all times in Python's format."""
    return json.loads(re.sub(r'(\d\d:\d\d:\d\d(?:\.\d+)?)Z"', r'\1+00:00"', json.dumps(value)))


@pytest.mark.npm
def test_generated_typescript_types_have_a_type_for_every_answer(document, tmp_path):
    npx = shutil.which("npx")
    assert npx, "make clients takes npm"
    subprocess.run([npx, "--yes", *TYPESCRIPT[:1], "openapi-typescript", str(document), "-o", "api.d.ts"], cwd=tmp_path,
                   check=True, capture_output=True)  # fmt: skip
    wanted = "\n".join(f"export const {name}: Typed<'{name}'> = true;" for name in answers(document))
    (tmp_path / "check.ts").write_text(
        """import type { operations } from './api';
type Answers<R> = R extends { content: { 'application/json': infer A } } ? A : never;
type Good<O extends keyof operations> = operations[O]['responses'][(200 | 201) & keyof operations[O]['responses']];
type Known<A> = [A] extends [never] ? false : unknown extends A ? false : A extends readonly unknown[] ? false : true;
type Typed<O extends keyof operations> = Known<Answers<Good<O>>>;
"""
        + wanted
    )
    checked = subprocess.run([npx, "--yes", *TYPESCRIPT[1:], "tsc", "--strict", "--noEmit", "check.ts"], cwd=tmp_path,
                             check=False, capture_output=True, text=True)  # fmt: skip
    assert checked.returncode == 0, checked.stdout
