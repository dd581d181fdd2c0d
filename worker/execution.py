"""Executes one lease, from its settings to the result for the server."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from gpt2core.process import launch
from gpt2core.process.node_time import NodeTime
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import CoreError
from taskloom.contract.attempts import Lease, ResultUpload
from taskloom.worker import affinity, builds, orphan, roots
from taskloom.worker.agent import StopReason
from taskloom.worker.settings import Settings
from taskloom.worker.spool import ARTIFACTS
from taskloom.worker.standby import Command, Standby
from taskloom.worker.supervise import Ending, Supervisor

TRACE = "trace.json.gz"  # of a tracing attempt
Outcome = Literal["succeeded", "failed", "cancelled"]


@dataclass(frozen=True)
class Verdict:
    """Outcome of an attempt, before serialisation."""

    outcome: Outcome
    result: dict[str, Any] | None
    error: dict[str, Any] | None


@dataclass(frozen=True)
class Placement:
    """Cores of the trainer's team and of the agent. shared: the agent runs on the team's cores, as no other is free."""

    team: tuple[int, ...]
    agent: tuple[int, ...]
    shared: bool


class Executor:
    """Executes leases one after the other on this worker's cores."""

    def __init__(
        self,
        settings: Settings,
        supervisor: Supervisor,
        command: Command,
        process_cores: Sequence[int],
        new_folder: Callable[[int], Path],
    ) -> None:
        self._settings, self._supervisor, self._command = settings, supervisor, command
        self._process_cores, self._new_folder = tuple(process_cores), new_folder
        self.standby = Standby(command, settings.cores)

    def execute(
        self, lease: Lease, spent: NodeTime, entered_stage: Callable[[], None], printed: Callable[[str], None]
    ) -> Verdict | None:
        """Execute the lease and return its outcome. None: the lease was lost and nothing is delivered.

        spent: the parts of the node's time since the previous trainer ended; this call adds the parts up to the end of
        its own trainer.
        """
        if not self._settings.walltime.fits(lease.deadline_s):
            detail = f"handed back: the run may take {lease.deadline_s:g} s, longer than this worker has left"
            return Verdict("cancelled", None, {"slug": "too-little-time", "detail": detail})
        try:
            requested = TrainConfig.from_dict(lease.spec)
            files = roots.find_files(requested, self._settings.data_root, self._settings.checkpoint_root)
            apart = lease.nodes > 1  # the launcher chooses cores on each node
            team = self._settings.cores if apart else affinity.team_cores(requested, self._settings.cores)
            config = TrainConfig.from_dict({**requested.to_dict(), **files, "cores": None if apart else team})
            unknown = {} if lease.build is None else builds.unknown(lease.build, config.to_dict())
            placement = self._place_agent(team)
            trainer = self.standby.take(self._command_of(lease.build, config, lease.nodes))
        except CoreError as error:
            return Verdict("failed", None, {"slug": error.slug, "detail": str(error), **error.fields(), "output": []})
        except OSError as error:
            return _not_started(error)
        with trainer.folder as folder:
            try:
                artifacts = self._new_folder(lease.attempt_id) / ARTIFACTS
                (folder / ARTIFACTS).symlink_to(artifacts)
                if lease.purpose == "tracing":
                    config = dataclasses.replace(config, trace=str(artifacts / TRACE))
                spent.went_to("starting")
                ahead_s = time.monotonic() - trainer.since_s
                ending = self._supervisor.run(
                    trainer.process,
                    {name: value for name, value in config.to_dict().items() if name not in unknown},
                    lease.deadline_s,
                    lambda pid: orphan.remember(self._settings.spool, pid),
                    entered_stage,
                    printed,
                )
            except OSError as error:
                trainer.withdraw()
                return _not_started(error)
            finally:
                orphan.forget(self._settings.spool)
            about, names = self._about(placement), {**restored(requested, files), **unknown}
            verdict = judge(ending, trainer.result, lease, about, names)
            parts = (verdict.result or {}).get("node_time") or {}  # older builds do not report it
            start_s = max(0.0, parts.get("starting_s", 0.0) - ahead_s)  # earlier parts contain the rest of its start
            spent.went_to_parts({**parts, "starting_s": start_s}, ending.at_s)
            if verdict.result is not None and parts:
                verdict.result["node_time"] = spent.to_dict()
            return None if ending.reason is StopReason.LEASE_LOST else verdict

    def _command_of(self, build: str | None, config: TrainConfig, nodes: int) -> Command | None:
        """Command of a trainer of another build, or of several ranks; None: a waiting trainer will do. It raises
        CoreError."""
        ranks, launcher = config.ranks, self._settings.launcher
        if build is None and ranks == 1:
            return None

        def command(result: Path) -> list[str]:
            plain = self._command(result) if build is None else builds.command(build, self._command(result))
            if nodes > 1:
                return launch.of_nodes(plain, launcher, nodes, ranks, config.threads)
            return plain if ranks == 1 else launch.of_ranks(plain, ranks)

        return command

    def _place_agent(self, team: tuple[int, ...]) -> Placement:
        spare = affinity.spare_cores(self._process_cores, team)
        agent = spare or self._process_cores
        affinity.move_agent(agent)
        return Placement(team, agent, shared=not spare)

    def _about(self, placement: Placement) -> dict[str, Any]:
        return {
            "worker_id": self._settings.worker_id,
            "slurm_job": self._settings.job.job_id if self._settings.job else None,
            "agent_cores": list(placement.agent),
            "agent_shared_measured_cores": placement.shared,
            "agent_nice": os.getpriority(os.PRIO_PROCESS, 0),
        }


def _not_started(error: OSError) -> Verdict:
    return Verdict("failed", None, {"slug": "not-started", "detail": str(error), "output": []})


def restored(requested: TrainConfig, files: Mapping[str, str]) -> dict[str, Any]:
    """The requested names, which replace this node's paths in the result."""
    return {field: getattr(requested, field) for field in (*files, "trace")}


def judge(ending: Ending, path: Path, lease: Lease, about: Mapping[str, Any], names: Mapping[str, Any]) -> Verdict:
    """Outcome of an attempt, from the end of its trainer."""
    result = _read_result(path, ending) if ending.code == 0 else None
    if isinstance(result, dict) and lease.build not in (None, result.get("environment", {}).get("core_hash")):
        result = f"the result is not from the requested build {lease.build}"
    if isinstance(result, dict):  # also if the trainer ended before a request to stop reached it
        result["config"] = {**result.get("config", {}), **names}
        result["worker"] = dict(about)  # not in `environment`, which must agree between comparable results
        if about["agent_shared_measured_cores"]:
            note = "the worker's agent shared the measured cores, since no other core is available"
            result["warnings"] = [*result.get("warnings", []), note]
        return Verdict("succeeded", result, None)
    error: dict[str, Any] = {"exit_code": ending.code if ending.code >= 0 else None, "signal": ending.signal}
    outcome: Outcome = "failed"
    details = {k: v for k, v in (ending.error or {}).items() if k not in ("event", "exit_code")}
    if ending.reason is StopReason.CANCEL:
        outcome = "cancelled"
        error |= {"slug": "cancelled", "detail": "cancelled on request"}
    elif ending.reason is StopReason.RELEASE:
        outcome = "cancelled"  # without a request to cancel, the server queues the run again
        error |= {"slug": "released", "detail": "handed back: the worker was asked to stop"}
    elif ending.reason is StopReason.DEADLINE:
        error |= {"slug": "timeout", "detail": f"stopped at the deadline, {lease.deadline_s:g} s after the claim"}
    elif "slug" in details:
        error |= details
    elif ending.signal is not None:
        oom = ending.oom_killed and ending.signal == "SIGKILL"
        why = "by Linux, since memory ran out" if oom else "not by the worker"
        slug = "out-of-memory" if oom else "killed"
        error |= {"slug": slug, "detail": f"the trainer was ended by {ending.signal}, {why}"}
    elif ending.code == 0:
        error |= {"slug": "no-result", "detail": result or "the trainer ended with exit status 0 but without a result"}
    else:
        error |= {"slug": "exit-status", "detail": f"the trainer ended with exit status {ending.code}"}
    return Verdict(outcome, None, {**error, "output": list(ending.output), "warnings": list(ending.warnings)})


def _read_result(path: Path, ending: Ending) -> dict[str, Any] | str:
    """Content of the result file, or the reason why it is not usable."""
    if ending.result is None:
        return "the trainer ended with exit status 0 but reported no result"
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != ending.result.get("sha256"):
            return "the result file differs from the one that the trainer reported"
        result = json.loads(content, parse_constant=_refuse_constant)
    except (OSError, ValueError) as error:
        return f"the result file cannot be read: {error}"
    return result if isinstance(result, dict) else "the result file contains no JSON object"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it contains {name}, which is not JSON")


def upload(worker_id: str, attempt_no: int, verdict: Verdict) -> ResultUpload:
    """A verdict as an upload, with its hash."""
    payload = json.dumps({"result": verdict.result, "error": verdict.error}, separators=(",", ":"))
    return ResultUpload(
        worker_id=worker_id,
        attempt_no=attempt_no,
        outcome=verdict.outcome,
        sha256=hashlib.sha256(payload.encode()).hexdigest(),
        payload=payload,
    )
