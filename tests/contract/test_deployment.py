"""docker-compose.yml follows the Compose specification, and the Dockerfile copies what is packaged."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from compose_spec import PyCompose

from taskloom.server.settings import Settings
from tests.support.present import present

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def parsed(compose):
    return PyCompose.from_yaml(yaml.safe_dump(compose))


def test_the_compose_file_follows_the_specification(compose):
    services = {"postgres", "server-1", "server-2", "proxy", "worker"}
    assert set(parsed(compose).service_names()) == services
    with pytest.raises(ValueError, match="netwok_mode"):
        parsed({**compose, "services": {"worker": {"image": "x", "netwok_mode": "host"}}})


def test_what_services_name_is_there(compose):
    for name, service in compose["services"].items():
        assert set(service.get("depends_on", ())) <= set(compose["services"]), name
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in compose["volumes"] or (ROOT / source).is_file(), (name, source)


def test_the_proxy_sends_to_both_servers_and_the_worker_to_the_proxy(compose):
    def port(name):
        command = compose["services"][name]["command"]
        return command[command.index("--port") + 1]

    caddyfile = (ROOT / "deploy" / "Caddyfile").read_text()
    assert f"reverse_proxy 127.0.0.1:{port('server-1')} 127.0.0.1:{port('server-2')} " in caddyfile
    listens = re.search(r"^http://(:\d+) \{\n\tbind 127.0.0.1$", caddyfile, re.M)
    assert f"http://127.0.0.1{present(listens)[1]}" in compose["services"]["worker"]["command"]


def test_nginx_lets_through_what_the_server_accepts():
    """The limits of the example are at least those of the server's settings."""
    text = (ROOT / "deploy/nginx.conf").read_text()
    settings = Settings()
    [megabytes] = re.findall(r"client_max_body_size (\d+)m;", text)
    assert int(megabytes) << 20 >= max(settings.max_artifact_bytes, settings.max_result_bytes)
    [timeout_s] = re.findall(r"proxy_read_timeout (\d+)s;", text)
    assert int(timeout_s) > max(settings.max_wait_s, settings.analysis_s)
    assert {"proxy_buffering off;", "proxy_request_buffering off;"} <= set(re.findall(r"^ +(\w+ off;)", text, re.M))
    assert text.count("{") == text.count("}")


def test_the_image_holds_every_package_and_owns_what_is_mounted(compose):
    dockerfile = (ROOT / "Dockerfile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    linked = {path.name for path in (ROOT / "taskloom").iterdir() if path.is_symlink()}
    assert set(re.findall(r"^COPY (\w+) \1$", dockerfile, re.M)) == packages | linked
    for source in re.findall(r"^COPY (.+) \./$", dockerfile, re.M)[0].split():
        assert (ROOT / source).is_file(), source
    store = compose["x-server"]["environment"]["TASKLOOM_ARTIFACT_ROOT"]
    assert f"mkdir -p {store}" in dockerfile
    assert compose["x-server"]["volumes"] == [f"artifacts:{store}"]


@pytest.mark.parametrize(("key", "mode"), [(None, 0), ("tlk_1_secret", 0o600), ("tlk_1_secret", 0o640)])
def test_the_job_script_of_a_worker_takes_a_key_where_there_is_one(tmp_path, key, mode):
    """The key is passed in the environment, because Slurm shows arguments to all users."""
    printing = tmp_path / "taskloom"
    printing.write_text('#!/bin/sh\nprintf "%s\\n" "token=$TASKLOOM_TOKEN" "$@"\n')
    printing.chmod(0o755)
    if key is not None:
        (tmp_path / "key").write_text(key + "\n")
        (tmp_path / "key").chmod(mode)
    given = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TASKLOOM_TOKEN_FILE": str(tmp_path / "key")}
    script = ROOT / "deploy/taskloom-worker.slurm"
    done = subprocess.run(["bash", script], env=given, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [
        f"token={key or ''}", "worker", "--drain", "release", "--idle-exit", "120s", "--label", "partition=none",
    ]  # fmt: skip
    assert ("other users can read this key" in done.stderr) is (mode == 0o640)
    assert "#SBATCH --open-mode=append\n" in script.read_text()


@pytest.mark.parametrize("service", ["server", "worker"])
def test_a_service_that_cannot_start_is_started_until_it_can(service):
    """systemd gives up after 5 starts within 10 s, which a full disk takes no longer than."""
    unit = (ROOT / f"deploy/taskloom-{service}.service").read_text()
    [seconds] = re.findall(r"^RestartSec=(\d+)$", unit, re.M)
    assert 5 * int(seconds) > 10
