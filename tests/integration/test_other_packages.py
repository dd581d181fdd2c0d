"""Networks, schedulers, optimizers and data of another package, which only declares entry points: mostly those of the
how-tos."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = {
    "gpt2core/networks/bigram": "other_package/bigram", "gpt2core/schedulers/reversed": "other_package/reversed",
    "gpt2core/optimizers/lion.py": "other_package/lion.py",
}  # fmt: skip
PAGES = ("add-a-network", "add-a-scheduler", "add-an-optimizer")
REGISTERED = """
from gpt2core.spec.data import Data
from gpt2core.spec.optimizers import Optimizer
LION = Optimizer("other_package.lion", ("lr", "beta1", "beta2", "weight_decay"), {"first_moment": ""})
COUNTING = Data(openers={"tokens": "other_package.counting:tokens"})
"""
COUNTED = """
import numpy as np

def tokens(config, path):
    return np.arange(config.tokens_per_step * config.steps + 1, dtype=np.uint16) % config.model.vocab
"""
ENTRY_POINTS = """
[taskloom.networks]
bigram = other_package.bigram.network
gpt2 = other_package.not_taken

[taskloom.schedulers]
reversed = other_package.reversed.scheduler
broken = other_package.missing

[taskloom.optimizers]
lion = other_package.registered:LION

[taskloom.data]
counting = other_package.registered:COUNTING
stdlib = other_package.not_taken
"""
KNOWN = """
import json, sys
from click.testing import CliRunner
from gpt2core.networks.memory import memory_bytes
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import CoreError
from taskloom.cli import main
from taskloom.contract.runs import RunSpec

spec = RunSpec(model="bigram", scheduler="reversed", optimizer="lion")
config = TrainConfig(model=spec.model, scheduler=spec.scheduler, optimizer=spec.optimizer, threads=1)
assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
assert memory_bytes(config)["optimizer"] == memory_bytes(config)["weights"]
assert TrainConfig(model="gpt2").model.network == "gpt2"
listed = CliRunner().invoke(main, ["train", "--help"]).output
assert all(name in listed for name in ("bigram", "reversed", "lion"))
assert not {"numba", "llvmlite"} & set(sys.modules)
refused = []
for settings in ({"scheduler": "reversed", "threads": 2}, {"scheduler": "broken"}, {"optimizer": "lion", "eps": 1e-3},
                 {"optimizer": "tiger"}, {"model": "resnet14-cifar", "data": "counting"}):
    try:
        TrainConfig(**settings)
    except CoreError as error:
        refused.append(str(error))
from gpt2core.data.sources import open_tokens
assert list(open_tokens(TrainConfig(data="counting"))[:3]) == [0, 1, 2]
assert open_tokens(TrainConfig(data="stdlib")).max() > 100
print(json.dumps(refused))
"""


def blocks(page: str) -> dict[str, str]:
    """The Python code of a how-to by its files, without the line for our registry."""
    text = (ROOT / "docs" / "how-to" / f"{page}.md").read_text(encoding="utf-8")
    text = text.partition("\n## A layer of one's own\n")[0]  # another example
    named = re.finditer(r"^(?:## [^\n]*)?`(gpt2core/[\w/]+\.py)`:?$|^```python\n(.*?)^```", text, re.S | re.M)
    found, path = {}, ""
    for each in named:
        path = each[1] or path
        if each[2] and not each[2].startswith(" "):  # a line for our registry
            found[path] = each[2]
    return found


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of processes that find the other package: a folder as pip installs it."""
    for page in PAGES:
        for path, code in blocks(page).items():
            for ours, other in NAMES.items():
                path = path.replace(ours, other)
                module, another = (each.removesuffix(".py").replace("/", ".") for each in (ours, other))
                code = code.replace(module, another)
            assert path.startswith("other_package/"), path
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(code, encoding="utf-8")
    for name, code in (("registered", REGISTERED), ("counting", COUNTED)):
        (tmp_path / "other_package" / f"{name}.py").write_text(code, encoding="utf-8")
    about = tmp_path / "other_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}


def run(environment: dict[str, str], *command: str) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_components_of_another_package_are_known_by_name(environment: dict[str, str]) -> None:
    threads, broken, eps, tiger, tokens = json.loads(run(environment, sys.executable, "-P", "-c", KNOWN))
    assert "at most 1 with scheduler reversed" in threads
    assert re.search(r"taskloom\.schedulers: broken of package other-package cannot be loaded: .*missing", broken)
    assert "since optimizer lion reads lr, beta1, beta2, weight_decay" in eps
    assert tiger.endswith("one of adamw, sgd, lion")
    assert "cifar10:PATH, cifar100:PATH, counting:PATH" not in tokens
    assert "network resnet reads images" in tokens


def test_two_packages_of_one_name_are_refused(environment: dict[str, str], tmp_path: Path) -> None:
    about = tmp_path / "third_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: third-package\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text("[taskloom.networks]\nbigram = third_package\n", encoding="utf-8")
    program = (
        "from gpt2core.spec.config import TrainConfig; from gpt2core.spec.errors import MachineError\n"
        "TrainConfig(model='tiny', seq=32)  # ours needs no other package\n"
        "try: TrainConfig(model='bigram')\nexcept MachineError as error: print(error)"
    )
    said = run(environment, sys.executable, "-P", "-c", program)
    assert "bigram is declared by two packages" in said
    assert "third-package" in said


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_another_packages_network_trains_under_its_scheduler_and_optimizer(environment: dict[str, str]) -> None:
    """The bits are those of our scheduler."""
    found, command = set(), Path(sys.executable).with_name("taskloom")
    for scheduler in ("reversed", "serial"):
        result = json.loads(run(
            environment, str(command), "train", "--model", "bigram", "--optimizer", "lion", "--lr", "0.001",
            "--scheduler", scheduler, "--threads", "1", "--batch", "2", "--seq", "16", "--steps", "4", "--json",
        ))  # fmt: skip
        assert (result["config"]["model"]["network"], result["config"]["optimizer"]) == ("bigram", "lion")
        assert result["losses"][-1] < result["losses"][0]
        found.add((result["weights_sha256"], *result["losses"]))
    assert len(found) == 1
