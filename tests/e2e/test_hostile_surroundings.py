"""Every command in surroundings that users' shells, containers and clusters bring: it works, or it exits with 2 and one
line that names the variable or file. Never a traceback, and no exit code but those that --help lists."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpt2core.node import openmp
from gpt2core.spec import settings
from gpt2core.spec.settings import cache_folder
from taskloom import Client
from taskloom.contract.experiments import ExperimentRequest
from taskloom.contract.options import WORKER
from taskloom.server.settings import Settings
from tests.support import every_command, fake_slurm, few_threads
from tests.support.command_line import TINY, json_of, taskloom
from tests.support.patience import DEADLINE_S
from tests.support.processes import House
from tests.support.processors import WITH_MKL
from tests.support.runs import SMALL, succeeded

NAME = "gr\xf6\xdfe \u6f22\u5b57 \U0001f469\u200d\U0001f467 e\u0301 " + 60 * "x"
POOLS = '[pools.a]\ncores = 1\nmemory = "1GiB"\nwalltime = 600\nmax_jobs = 1\n'
Run = Callable[..., tuple[int, str]]
COMMANDS = {
    "plan": ("train", *TINY, "--plan"),
    "train": ("train", *TINY),
    "runs": ("runs", "list"),
    "submit": ("submit", *TINY, "--scheduler", "task,fork-join", "--dry-run"),
    "worker": ("worker", "--idle-exit", "1s", "--peaks", "never"),
    "provision": ("provision", "pools.toml", "--plan"),
    "serve": ("serve", "--port", "0"),
}
EMPTY = {
    **{f"TASKLOOM_{name.upper()}": "" for name in Settings.model_fields},
    **{each.variable: "" for each in WORKER if each.variable and each.name != "server"},
    **dict.fromkeys((*settings.TRAINERS, "TASKLOOM_TOKEN", "TASKLOOM_TOKEN_FILE", "TASKLOOM_START_WAIT_S"), ""),
    **dict.fromkeys(("NUMBA_OPT", "NUMBA_BOUNDSCHECK", "NUMBA_CPU_NAME", "NUMBA_CACHE_DIR", "TMPDIR"), ""),
}
# Surroundings in which everything works. A second text: a shell that starts the command as "$@".
HARMLESS: dict[str, tuple[Mapping[str, str], str]] = {
    "ASCII and a narrow terminal": (
        {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii",
         "COLUMNS": "20", "TERM": "dumb", "NO_COLOR": "1", "TZ": "Nowhere/City"}, ""),
    "another encoding and a terminal of one column": (
        {"LC_ALL": "de_DE", "PYTHONUTF8": "0", "PYTHONIOENCODING": "cp1252:strict", "COLUMNS": "1", "LINES": "0",
         "TERM": "", "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1"}, ""),
    "empty variables": (EMPTY, ""),
    "threads of libraries": (
        {"OMP_NUM_THREADS": "all", "OMP_PLACES": "{99}", "OMP_PROC_BIND": "x", "OMP_SCHEDULE": "x",
         "KMP_BLOCKTIME": "x", "OMP_STACKSIZE": "x", "GOMP_CPU_AFFINITY": "99-200", "MKL_NUM_THREADS": "x",
         "MKL_THREADING_LAYER": "x", "MKL_CBWR": "x", "OPENBLAS_NUM_THREADS": "x", "OPENBLAS_CORETYPE": "x",
         "NUMBA_NUM_THREADS": "64", "NUMBA_DISABLE_JIT": "1", "NUMBA_THREADING_LAYER": "x", "KMP_AFFINITY": "x"}, ""),
    "proxies and certificates": (
        {"HTTP_PROXY": "http://127.0.0.1:9", "ALL_PROXY": "socks5://127.0.0.1:9", "NO_PROXY": "[::1",
         "SSL_CERT_FILE": "/nowhere", "SSLKEYLOGFILE": "/nowhere/keys", "OPENSSL_CONF": "/nowhere"}, ""),
    "Python's variables": (
        {"PYTHONHASHSEED": "0", "PYTHONPATH": "/nowhere:/proc/1", "PYTHONWARNINGS": "x::y",
         "PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1", "PYTHONFAULTHANDLER": "1"}, ""),
    "no assertions": ({"PYTHONOPTIMIZE": "2"}, ""),
    "a preloaded library that is missing": ({"LD_PRELOAD": "/nowhere.so", "LD_LIBRARY_PATH": "/nowhere::"}, ""),
    "allocators": (
        {"MALLOC_ARENA_MAX": "x", "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "85", "MALLOC_CONF": "x:1",
         "GLIBC_TUNABLES": "glibc.malloc.tcache_count=x", "PYTHONMALLOC": "malloc",
         "LD_PRELOAD": "libjemalloc.so.9 libtcmalloc.so.9"}, ""),
    "one core": ({}, 'exec taskset -c "$(taskset -cp $$ | grep -oE "[0-9]+$")" "$@"'),
    "closed input": ({}, 'exec <&-; exec "$@"'), "a low priority": ({}, 'exec nice -n 5 "$@"'),
    "variables of services": (
        {"NOTIFY_SOCKET": "/nowhere", "LISTEN_FDS": "x", "WEB_CONCURRENCY": "x", "JOURNAL_STREAM": "x",
         "PGHOST": "x"}, ""),
}  # fmt: skip
# What would give a trainer other kernels, threads or integers than it asks for.
CONTRADICTING = {
    "MKL_INTERFACE_LAYER": "ILP64", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "MKL_CBWR": "COMPATIBLE",
    "MKL_THREADING_LAYER": "TBB", "MKL_NUM_THREADS": "7", "MKL_DOMAIN_NUM_THREADS": "9", "MKL_VERBOSE": "1",
    "OPENBLAS_CORETYPE": "Nehalem", "OPENBLAS_NUM_THREADS": "7", "GOTO_NUM_THREADS": "9", "OPENBLAS_VERBOSE": "2",
    "OMP_THREAD_LIMIT": "1", "OMP_MAX_ACTIVE_LEVELS": "0", "OMP_NESTED": "false", "OMP_DYNAMIC": "true",
    "KMP_DEVICE_THREAD_LIMIT": "1", "KMP_ALL_THREADS": "1", "KMP_LIBRARY": "serial", "KMP_HW_SUBSET": "1c,1t",
}
# Each command is tried in several of them together.
TOGETHER = (
    ("ASCII and a narrow terminal", "proxies and certificates", "variables of services", "Python's variables",
     "a low priority"),
    ("another encoding and a terminal of one column", "threads of libraries", "allocators", "no assertions",
     "one core"),
    ("empty variables", "closed input", "a preloaded library that is missing"),
)  # fmt: skip
# A command, a variable, a value that it cannot use, and what its one line names instead of the variable.
WRONG = (
    ("plan", "TASKLOOM_CACHE_DIR", "/proc/1/x", ""), ("plan", "NUMBA_CACHE_DIR", "/proc/1/x", ""),
    ("plan", "TASKLOOM_CLOCK", "sundial", ""), ("plan", "TASKLOOM_STALL_S", "nan", ""),
    ("plan", "TASKLOOM_STRESS", "inf", ""), ("plan", "NUMBA_OPT", "fast", ""),
    ("plan", "NUMBA_BOUNDSCHECK", "yes", ""), ("plan", "NUMBA_CPU_NAME", "pentium-5", ""),
    ("runs", "TASKLOOM_TOKEN_FILE", "/bin/ls", "/bin/ls"),
    ("runs", "TASKLOOM_START_WAIT_S", "soon", ""), ("worker", "TASKLOOM_TOKEN_FILE", "/nowhere", "/nowhere"),
    ("worker", "TASKLOOM_SPOOL", "/etc/passwd", ""), ("worker", "TASKLOOM_SPOOL", "/proc/1/x", ""),
    ("worker", "XDG_STATE_HOME", "/proc/1", "TASKLOOM_SPOOL"), ("worker", "TASKLOOM_LABELS", "a", "label"),
    ("worker", "TASKLOOM_SERVER", "http://127.0.0.1:x", "server"), ("worker", "TASKLOOM_CORES", "4000", "cores"),
    ("worker", "TASKLOOM_CLOCK", "sundial", ""), ("provision", "XDG_STATE_HOME", "/proc/1", "--state"),
    ("provision", "PATH", "/nowhere", ""), ("serve", "TASKLOOM_LEASE_S", "60s", ""),
    ("serve", "TASKLOOM_ARTIFACT_ROOT", "/proc/1/x", ""), ("serve", "TASKLOOM_ANSWER_ROOT", "/etc/passwd", ""),
    ("serve", "TASKLOOM_DATABASE_URL", "sqlite:////nowhere/x/y.db", "/nowhere/x/y.db"),
    ("serve", "TASKLOOM_DATABASE_URL", "sqlite:////bin/ls", "/bin/ls"),
    ("serve", "TASKLOOM_DATABASE_URL", "postgresql://u:p@ss:w0rd/1@127.0.0.1/x", "database"),
)  # fmt: skip
# A module that cannot be loaded, as where LD_LIBRARY_PATH leads to another library, and a command that needs it.
UNLOADED = (
    ("_ssl", "runs"), ("_ssl", "worker"), ("_ssl", "provision"), ("_sqlite3", "serve"), ("_ctypes", "plan"),
)  # fmt: skip
LOST = {  # surroundings that lose what a command says, or in which nothing can be written
    "closed output": "exec >&- 2>&-; exec \"$@\"", "a full disk behind output": "exec >/dev/full; exec \"$@\"",
    "no files can grow": "ulimit -f 0; exec \"$@\"",
}  # fmt: skip

ULIMITS = ("ulimit -v 200000", "ulimit -v 1000000", "ulimit -n 32", "ulimit -f 4")  # KiB of addresses, files, KiB
LIMITS = {limit: f'{limit}; exec "$@"' for limit in ULIMITS} | {
    f"{most} threads": few_threads.shell(most) for most in (1, 3, 6, 12)
}


@pytest.fixture
def run(tmp_path: Path, home: House) -> Run:
    """Execute a command; a server is ended once it listens."""
    slurm = fake_slurm.commands(tmp_path / "slurm")
    (tmp_path / "pools.toml").write_text(POOLS)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TASKLOOM_")}
    kept |= {"PATH": f"{slurm}:{kept['PATH']}", "TASKLOOM_SERVER": home.url, "TASKLOOM_START_WAIT_S": "0"}
    kept |= {"TASKLOOM_CACHE_DIR": str(cache_folder())}
    count = iter(range(1000))

    def run(command: str, variables: Mapping[str, str], *shells: str) -> tuple[int, str]:
        folder = tmp_path / f"run-{next(count)}"
        folder.mkdir()
        (folder / "pools.toml").write_text(f'server = "{home.url}"\n{POOLS}')
        environment = {**kept, "XDG_STATE_HOME": str(folder / "state"), **variables}
        arguments = [str(Path(sys.executable).with_name("taskloom")), *COMMANDS[command]]
        for shell in filter(None, shells):
            arguments = ["/bin/bash", "-c", shell, "bash", *arguments]
        with (folder / "printed").open("w+") as out, (folder / "errors").open("w+") as errors:
            with subprocess.Popen(
                arguments, cwd=folder, env=environment, stdout=out, stderr=errors, stdin=subprocess.DEVNULL
            ) as process:
                listening = command == "serve"
                deadline = time.monotonic() + DEADLINE_S
                while process.poll() is None:
                    assert time.monotonic() < deadline, (command, variables)
                    if listening and "startup complete" in (folder / "errors").read_text():
                        process.send_signal(signal.SIGTERM)
                        listening = False
                    time.sleep(0.05)
            printed = (folder / "printed").read_text() + (folder / "errors").read_text()
        return process.returncode, printed

    return run


def holds(ending: tuple[int, str], codes: tuple[int, ...]) -> str:
    code, printed = ending
    assert "Traceback" not in printed, printed
    assert "Exception ignored" not in printed, printed
    assert code in codes, printed
    return printed


def surrounding(together: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Variables and shells of several surroundings."""
    each = [HARMLESS[name] for name in together]
    return {name: value for variables, _ in each for name, value in variables.items()}, [shell for _, shell in each]


def every(run: Run, calls: Sequence[tuple[Any, ...]]) -> list[tuple[int, str]]:
    """Two commands at a time."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda call: run(*call), calls))


def names(ending: tuple[int, str], variable: str, instead: str) -> None:
    printed = holds(ending, (2,))
    last = printed.splitlines()[-1]
    assert (instead or variable) in last, printed
    assert "w0rd" not in printed


def test_some_commands_in_surroundings_of_each_kind(run: Run) -> None:
    for command, surrounding in (("plan", "threads of libraries"), ("runs", "ASCII and a narrow terminal")):
        holds(run(command, *HARMLESS[surrounding]), (0,))
    names(run("plan", {"TASKLOOM_STALL_S": "nan"}), "TASKLOOM_STALL_S", "")
    names(run("worker", {"TASKLOOM_SPOOL": "/etc/passwd"}), "TASKLOOM_SPOOL", "")
    holds(run("runs", {}, LOST["a full disk behind output"]), (1,))
    holds(run("runs", {}, LOST["closed output"]), (0,))
    names(run("train", {}, 'ulimit -v 235000; exec "$@"'), "ulimit -v", "")


@pytest.mark.slow
@pytest.mark.parametrize("together", TOGETHER)
def test_workers_and_servers_work(run: Run, together: tuple[str, ...]) -> None:
    variables, shells = surrounding(together)
    for ending in every(run, [(command, variables, *shells) for command in ("worker", "serve")]):
        holds(ending, (0,))


def test_each_command_of_the_command_line_is_tried() -> None:
    assert sorted(every_command.names()) == sorted(every_command.ARGUMENTS)
    assert {surrounding for each in TOGETHER for surrounding in each} == set(HARMLESS)


@pytest.mark.slow
@pytest.mark.timeout(900)  # beside other load
@pytest.mark.parametrize("together", TOGETHER)
def test_every_command_works(home: House, client: Client, tmp_path: Path, together: tuple[str, ...]) -> None:
    queue = {"name": NAME, "notes": NAME, "base": {**SMALL, "threads": 1}, "axes": {"scheduler": ["serial", "task"]}}
    home.start_worker("quick")
    succeeded(client, client.submit(ExperimentRequest.model_validate(queue)).id, 2)
    for command, ending in tried(home, tmp_path, *surrounding(together)).items():
        refused = every_command.NONE in every_command.ARGUMENTS[command] or command in every_command.REFUSED
        holds(ending, (0, 2) if command == "doctor" else (2,) if refused else (0,))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_command_ends_where_its_output_is_lost(home: House, tmp_path: Path) -> None:
    for ending in tried(home, tmp_path, {}, [LOST["a full disk behind output"]], "--lost").values():
        holds(ending, (0, 1, 2, 3))


def tried(
    home: House, folder: Path, variables: Mapping[str, str], shells: Sequence[str], *options: str
) -> dict[str, tuple[int, str]]:
    """The exit code of each command in a surrounding and what it printed."""
    (folder / "pools.toml").write_text(f'server = "{home.url}"\n{POOLS}')
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TASKLOOM_")}
    kept |= {"PATH": f"{fake_slurm.commands(folder / 'slurm')}:{kept['PATH']}", "TASKLOOM_SERVER": home.url,
             "TASKLOOM_START_WAIT_S": "0", "TASKLOOM_CACHE_DIR": str(cache_folder()),
             "XDG_STATE_HOME": str(folder / "state")}  # fmt: skip
    readable, writable = os.pipe()
    command = [sys.executable, "-P", every_command.__file__, str(writable), *options]
    for shell in filter(None, shells):
        command = ["/bin/bash", "-c", shell, "bash", *command]
    with open(readable, encoding="utf-8") as found, subprocess.Popen(  # noqa: PTH123 - a descriptor
        command, cwd=folder, env={**kept, **variables}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, pass_fds=[writable],
    ):  # fmt: skip
        os.close(writable)
        return {name: (code, printed) for name, (code, printed) in json.load(found).items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [pytest.param(("--threads", "1", "--blas", "mkl"), marks=WITH_MKL), ("--threads", "1", "--blas", "openblas"),
     *(("--threads", "2", "--allow-oversubscription", "--scheduler", "omp-task", "--runtime", runtime)
       for runtime in openmp.find())],
    ids=lambda how: how[-1],
)  # fmt: skip
def test_variables_of_libraries_change_no_bit(monkeypatch: pytest.MonkeyPatch, how: tuple[str, ...]) -> None:
    train = ("train", *TINY, "--data", "synthetic", *how, "--json")
    found = [json_of(taskloom(*train))["weights_sha256"]]
    for name, value in CONTRADICTING.items():
        monkeypatch.setenv(name, value)
    found.append(json_of(taskloom(*train))["weights_sha256"])
    assert found[0] == found[1]


@pytest.mark.slow
def test_every_value_that_cannot_be_used_is_named(run: Run) -> None:
    endings = every(run, [(command, {variable: value}) for command, variable, value, _ in WRONG])
    for each, (_, variable, _, instead) in zip(endings, WRONG, strict=True):
        names(each, variable, instead)


@pytest.mark.slow
def test_a_library_that_cannot_be_loaded_is_named(run: Run, tmp_path: Path) -> None:
    calls = []
    for module, command in UNLOADED:
        (tmp_path / module).mkdir(exist_ok=True)
        (tmp_path / module / "sitecustomize.py").write_text(f"import sys\nsys.modules[{module!r}] = None\n")
        calls.append((command, {"PYTHONPATH": f"{tmp_path / module}:{os.environ.get('PYTHONPATH', '')}"}))
    for ending, (module, _) in zip(every(run, calls), UNLOADED, strict=True):
        names(ending, module, "")


@pytest.mark.slow
@pytest.mark.parametrize("surrounding", LOST)
def test_no_command_ends_in_a_traceback_where_nothing_can_be_written(run: Run, surrounding: str) -> None:
    for ending in every(run, [(command, {}, LOST[surrounding]) for command in COMMANDS if command != "serve"]):
        holds(ending, (0, 1, 2, 3))


@pytest.mark.slow
@pytest.mark.parametrize("limit", LIMITS)
def test_no_command_ends_in_a_traceback_where_a_limit_is_low(run: Run, limit: str) -> None:
    for ending in every(run, [(command, {}, LIMITS[limit]) for command in COMMANDS]):
        holds(ending, (0, 1, 2, 3))
