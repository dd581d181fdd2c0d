"""The jobs of docs/how-to/use-in-ci.md for GitHub, GitLab and Jenkins: their shell lines, run against a server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.support.command_line import cli
from tests.support.processes import ROOT, House

PAGE = (ROOT / "docs" / "how-to" / "use-in-ci.md").read_text()
COMMIT = "1a2b3c4d" * 5
INSTALLS = ("pip install", "apt-get")  # what the machine of the tests has already
JQ = "import json, sys\nfound = json.load(open(sys.argv[2]))\nfor name in sys.argv[1][1:].split('.'):\n"
JQ += "    found = found[name]\nprint(json.dumps(found))\n"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)


def job(system: str) -> list[str]:
    """The shell lines of a system's job."""
    jobs: dict[str, Any] = {key: value for text in blocks("yaml") for key, value in yaml.safe_load(text).items()}
    if system == "github":
        return [step["run"] for step in jobs["jobs"]["measure"]["steps"] if "run" in step]
    if system == "gitlab":
        return [str(line) for line in jobs["measure"]["script"]]
    return re.findall(r"sh '(.*)'", blocks("groovy")[0])


VARIABLES = {
    "github": {"GITHUB_ACTIONS": "true", "GITHUB_SHA": COMMIT, "GITHUB_REF_NAME": "main"},
    "gitlab": {"GITLAB_CI": "true", "CI_COMMIT_SHA": COMMIT, "CI_COMMIT_BRANCH": "main"},
    "jenkins": {"JENKINS_URL": "http://ci/", "GIT_COMMIT": COMMIT, "BRANCH_NAME": "main"},
}


@pytest.fixture
def keyed(home: House) -> dict[str, str]:
    """Keys by scope of a server that has some."""
    admin = cli("keys", "create", "--scope", "admin", server=home.url).stdout.strip()
    create = ("keys", "create", "--scope")
    others = {scope: cli(*create, scope, server=home.url, token=admin) for scope in ("submit", "worker")}
    return {"admin": admin, **{scope: made.stdout.strip() for scope, made in others.items()}}


def shell(lines: list[str], folder: Path, server: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run lines as a CI system does, with `taskloom` and `jq`."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "jq.py").write_text(JQ)
    for name, program in (("taskloom", "-P -m taskloom.cli"), ("jq", str(programs / "jq.py"))):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {program} "$@"\n')
        (programs / name).chmod(0o755)
    surroundings = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("CI", "GIT", "BRANCH"))},
        "PATH": f"{programs}:{os.environ['PATH']}", "TASKLOOM_SERVER": server, **variables,
    }  # fmt: skip
    script = "\n".join(line for line in lines if not any(part in line for part in INSTALLS))
    return subprocess.run(
        ["bash", "-e", "-c", script], cwd=folder, env=surroundings, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("system", VARIABLES)
def test_a_job_measures_its_commit_and_shows_the_answer(
    home: House, keyed: dict[str, str], tmp_path: Path, system: str
) -> None:
    home.start_worker(TASKLOOM_TOKEN=keyed["worker"])
    (tmp_path / "nightly.toml").write_text(blocks("toml")[0])
    summary = tmp_path / "summary.md"
    variables = {**VARIABLES[system], "TASKLOOM_TOKEN": keyed["submit"], "GITHUB_STEP_SUMMARY": str(summary)}
    lines = job(system)
    assert any("taskloom submit" in line for line in lines)
    done = shell(lines, tmp_path, home.url, **variables)
    assert done.returncode == 0, done.stderr
    experiment = json.loads((tmp_path / "submitted.json").read_text())["experiment"]
    assert (experiment["state"], experiment["commit"], experiment["branch"]) == ("finished", COMMIT, "main")
    if system == "github":
        assert experiment["verdict"]["sentence"].partition(" [")[0] in summary.read_text()
    else:
        suite = ElementTree.parse(tmp_path / "taskloom.xml").getroot()
        assert [case.tag for case in suite.iter("testcase")]


@pytest.mark.slow
def test_the_badge_is_fetched_as_printed(home: House, keyed: dict[str, str], tmp_path: Path) -> None:
    (line,) = [text for text in blocks("sh") if text.startswith("curl")]
    (tmp_path / "ci.key").write_text(keyed["submit"] + "\n")
    home.start_worker(TASKLOOM_TOKEN=keyed["worker"])
    (tmp_path / "nightly.toml").write_text(blocks("toml")[0])
    before = f"taskloom submit nightly.toml --tag nightly --branch main --commit {COMMIT} --wait"
    fetch = line.replace("http://127.0.0.1:8321", home.url)
    done = shell([before, fetch], tmp_path, home.url, TASKLOOM_TOKEN=keyed["submit"])
    assert done.returncode == 0, done.stderr
    image = ElementTree.parse(tmp_path / "taskloom.svg").getroot()
    assert "nightly" in "".join(image.itertext())
