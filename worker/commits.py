"""Stores the trainer of a commit on this node, as a build that this node's workers offer.

    python -P -m taskloom.worker.commits REPOSITORY COMMIT

prints the build's name as JSON. `taskloom bisect` starts it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from gpt2core.process import streams
from gpt2core.process.launch import PROTOCOL
from gpt2core.process.temporary import TemporaryFolder
from gpt2core.spec import printed
from gpt2core.spec.errors import ConfigError, InputError
from gpt2core.spec.version import Origin, git, with_commit
from taskloom.worker import builds

EXIT_OK, EXIT_BAD_INPUT = 0, 2
IMPORT_S = 60.0  # longest time that the commit's trainer may take to describe itself
DESCRIBE = """import dataclasses, json
from gpt2core.process.launch import PROTOCOL
from gpt2core.spec.config import TrainConfig
print(json.dumps({"protocol": PROTOCOL, "settings": [item.name for item in dataclasses.fields(TrainConfig)]}))"""


def keep(repository: Path, commit: str) -> str:
    """Store the trainer of a commit; return its build. Raises ConfigError or OSError."""
    sha = git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
    with TemporaryFolder() as part:
        archive = part / "trainer.zip"
        written = ("archive", "--format=zip", f"--output={archive}", sha or commit, builds.PACKAGE)
        if sha is None or git(repository, *written) is None:
            raise ConfigError("commit", commit, f"a commit of {repository} that has a trainer ({builds.PACKAGE})")
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(part)
        about = _described(part, commit)
        at = git(repository, "show", "-s", "--format=%cI", sha)
        origin = Origin(with_commit(sha), sha, dirty=False, committed_at=at)
        return builds.store(part / builds.PACKAGE, about, origin)


def _described(folder: Path, commit: str) -> dict[str, Any]:
    """What the trainer in this folder says of itself. Raises ConfigError if no worker here could start it."""
    command = ["env", f"PYTHONPATH={folder}", sys.executable, "-P", "-c", DESCRIBE]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=IMPORT_S, stdin=subprocess.DEVNULL
        )
        about = printed.document(done.stdout, '{"protocol"')
    except (subprocess.SubprocessError, ValueError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise ConfigError("commit", commit, f"a commit whose trainer can be loaded here ({said[-1]})") from error
    if about["protocol"] != PROTOCOL:
        raise ConfigError("commit", commit, f"a commit whose trainer has protocol {PROTOCOL}, not {about['protocol']}")
    return dict(about)


def main(arguments: list[str]) -> int:
    """Store a commit's trainer and print its build; return the exit code."""
    try:
        repository, commit = arguments
        print(json.dumps({"build": keep(Path(repository), commit)}))
    except (InputError, OSError, ValueError) as error:
        print(json.dumps({"build": None, "error": str(error)}))
        return EXIT_BAD_INPUT
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(streams.guarded(lambda: main(sys.argv[1:])))
