"""What sites and users put around Slurm's commands and into a job's prelude."""

import os
import subprocess

import pytest

from taskloom.provisioner import slurm
from taskloom.provisioner.pools import Pool, Pools
from taskloom.provisioner.slurm import QueuedJob, SlurmUnknown

BANNER = "--------\n   Welcome to the Example Supercomputer\n--------\n--> Verifying valid submit host (login1)...OK\n"


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Put a command before those of the machine: it prints this text, and stores its environment."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def make(name, printed):
        (tmp_path / "printed").write_text(printed)
        (tmp_path / name).write_text(f"#!/bin/sh\nenv > {tmp_path}/environment\ncat {tmp_path}/printed\n")
        (tmp_path / name).chmod(0o755)
        return tmp_path / "environment"

    return make


@pytest.mark.parametrize(
    "printed",
    [
        "4711", "4711\n", "4711;east\n", BANNER + "4711\n", "4711\n" + BANNER, BANNER + "4711;east\nbye\n", "1\n4711",
        "\x1b[1m4711\x1b[0m\n", "\x1b[32mready\x1b[0m\n\x1b[0m4711", BANNER + "Submitted batch job 4711\n",
        "Submitted batch job 4711 on cluster east\n",
        "\x1b[01;31m\x1b[K4711\x1b[m\x1b[K\n", "\x1b]0;login1\x07\x1b[?25l4711\x1b[?25h\n", "\x1b(B\x1b[m4711;east\n",
        "\x1b]8;;http://login1\x1b\\4711\x1b]8;;\x1b\\\n",
    ],
)  # fmt: skip
def test_the_last_line_that_is_a_number_is_the_job(command, printed):
    command("sbatch", printed)
    assert slurm.submit(["sbatch", "--parsable"], "") == "4711"


@pytest.mark.parametrize("printed", ["", BANNER, "Cancelled batch job 4711", "4711 4712", "-4711"])
def test_without_such_a_line_it_is_unknown_whether_the_job_exists(command, printed):
    command("sbatch", printed)
    with pytest.raises(SlurmUnknown, match="sbatch printed"):
        slurm.submit(["sbatch", "--parsable"], "")


def test_a_sites_messages_are_no_jobs(command):
    jobs = "JOBID|NAME|STATE|REASON\n12|taskloom.a.1|PENDING|(None)\n13_4|b|RUNNING|x|y\n"
    command("squeue", BANNER + "CLUSTER: east\n" + jobs + BANNER)
    assert slurm.queue() == [
        QueuedJob("12", "taskloom.a.1", "PENDING", "(None)"), QueuedJob("13_4", "b", "RUNNING", "x|y"),
    ]  # fmt: skip
    command("squeue", "\x1b[1mJOBID|NAME|STATE|REASON\x1b[0m\n" + BANNER)
    assert slurm.queue() == []


def test_columns_may_be_padded(command):
    command("squeue", "JOBID | NAME | STATE | REASON\n 12 | taskloom.a.1 | PENDING | (None)\n")
    assert slurm.queue() == [QueuedJob("12", "taskloom.a.1", "PENDING", "(None)")]


@pytest.mark.parametrize("printed", ["nonsense", BANNER, "x|y\n", "12|a|PENDING|x\nx|y\n", "JOBID|NAME\n"])
def test_what_is_no_list_of_jobs_is_not_taken_for_an_empty_one(command, printed):
    command("squeue", printed)
    with pytest.raises(SlurmUnknown, match="squeue printed"):
        slurm.queue()


@pytest.mark.parametrize("name", ["squeue", "sbatch", "scancel"])
def test_the_users_own_options_of_commands_are_left_out(command, monkeypatch, name):
    theirs = {
        "SQUEUE_STATES": "RUNNING", "SQUEUE_FORMAT": "%A", "SQUEUE_PARTITION": "x", "SBATCH_WAIT": "1",
        "SBATCH_ARRAY_INX": "0-9", "SCANCEL_STATE": "RUNNING",
        "SLURM_MEM_PER_CPU": "1", "SLURM_STEP_ID": "0", "SLURM_CPUS_PER_TASK": "7",
    }  # fmt: skip
    for variable, value in {**theirs, "SLURM_CONF": "/etc/slurm.conf"}.items():
        monkeypatch.setenv(variable, value)
    seen = command(name, "1\n" if name == "sbatch" else "")
    submit, cancel = (lambda: slurm.submit(["sbatch"], "")), (lambda: slurm.cancel("1"))
    {"squeue": slurm.queue, "sbatch": submit, "scancel": cancel}[name]()
    names = {line.partition("=")[0] for line in seen.read_text().splitlines()}
    assert "SLURM_CONF" in names
    assert not names & set(theirs)


def in_bash(script, environment):
    return subprocess.run(
        ["bash"], input=script, env=environment, cwd=environment["HOME"], capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip


PRELUDES = [
    'if [ "$PS1" ]; then PS1="job> "; fi', "export LD_LIBRARY_PATH=/opt/lib:$LD_LIBRARY_PATH", "false",
    "cd /nonexistent", "grep -q nothing /dev/null | cat", "set -u", 'export NAME="two\nlines"', "# a comment",
    ". /etc/profile", "trap 'echo \"$BASH_COMMAND $STEP\" >&2' DEBUG", "trap 'echo \"at $PLACE\" >&2' ERR; false",
    "shopt -s failglob nullglob", "set -o posix", "IFS=/", "set -f; set -C",
]  # fmt: skip


@pytest.mark.parametrize("prelude", PRELUDES)
def test_a_prelude_runs_as_in_a_plain_job_script(tmp_path, prelude):
    """Foreign shell code uses variables that are not set, and commands that fail."""
    (tmp_path / "taskloom").write_text('#!/bin/sh\necho "started $*"\n')
    (tmp_path / "taskloom").chmod(0o755)
    pool = Pool(name="a", cores=1, memory=1 << 30, walltime=600, max_jobs=1,
                prelude=f"{prelude}\nPATH={tmp_path}:$PATH\n")  # fmt: skip
    _, script = slurm.submission(Pools(pools=(pool,)), pool, "a.1")
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7"}
    done = in_bash(script, environment)
    assert done.stdout.startswith("started worker --server"), done.stderr
    assert done.stdout.endswith("slurm_job=7\n")


def test_without_its_prelude_the_command_is_named(tmp_path):
    pool = Pool(name="a", cores=1, memory=1 << 30, walltime=600, max_jobs=1, prelude="module load taskloom")
    _, script = slurm.submission(Pools(pools=(pool,)), pool, "a.1")
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7"}
    done = in_bash(script, environment)
    assert done.returncode == 127
    assert "taskloom: " in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("end", ["", "\n", "\\", "\\\n", " # a comment \\\n\n"])
def test_the_end_of_a_prelude_does_not_reach_the_next_line(tmp_path, end):
    (tmp_path / "taskloom").write_text('#!/bin/sh\necho "key $TASKLOOM_TOKEN_FILE"\n')
    (tmp_path / "taskloom").chmod(0o755)
    pool = Pool(name="a", cores=1, memory=1 << 30, walltime=600, max_jobs=1,
                prelude=f"PATH={tmp_path}:$PATH\necho prelude{end}")  # fmt: skip
    _, script = slurm.submission(Pools(pools=(pool,), token_file=tmp_path / "key"), pool, "a.1")
    done = in_bash(script, {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7"})
    assert done.stdout == f"prelude\nkey {tmp_path}/key\n", done.stderr


def test_an_address_with_a_password_comes_from_the_environment(tmp_path):
    (tmp_path / "taskloom").write_text('#!/bin/sh\necho "at $TASKLOOM_SERVER: $*"\n')
    (tmp_path / "taskloom").chmod(0o755)
    pool = Pool(name="a", cores=1, memory=1 << 30, walltime=600, max_jobs=1, prelude=f"PATH={tmp_path}:$PATH")
    _, script = slurm.submission(Pools(pools=(pool,), server="http://me:w0rd@taskloom"), pool, "a.1")
    assert "w0rd" not in script
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7"}
    done = in_bash(script, environment | {"TASKLOOM_SERVER": "http://me:w0rd@taskloom"})
    assert done.stdout.startswith("at http://me:w0rd@taskloom: worker --drain"), done.stderr
    done = in_bash(script, environment)
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert "TASKLOOM_SERVER: is missing: sbatch must pass it on" in done.stderr


def test_a_job_has_each_label_once():
    """A worker takes none twice."""
    pool = Pool(name="a", cores=1, memory=1 << 30, walltime=600, max_jobs=1, labels={"slurm_job": "x", "pool": "y"})
    _, script = slurm.submission(Pools(pools=(pool,)), pool, "a.1")
    assert script.count("--label") == 2
    assert "pool=a" in script


def test_a_command_that_asks_back_gets_no_answer(tmp_path, monkeypatch):
    (tmp_path / "scancel").write_text("#!/bin/sh\nread answer || exit 0\nexit 1\n")
    (tmp_path / "scancel").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    ours, theirs = os.pipe()  # an input that stays open
    with os.fdopen(ours) as given, os.fdopen(theirs, "w"):
        monkeypatch.setattr(slurm, "ANSWER_S", 5.0)
        before = os.dup(0)
        os.dup2(given.fileno(), 0)
        try:
            slurm.cancel("1")
        finally:
            os.dup2(before, 0)
            os.close(before)
