"""Checks of uploaded results, whose text is stored unchanged, and figures for lists."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import threading
import zlib
from collections.abc import Mapping, Sized
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from gpt2core.spec.config import NAME_SET, TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.goals import LOSS, Goal, steps_run
from gpt2core.spec.phases import MODES, by_phase
from gpt2core.spec.result import median, tokens_per_step
from gpt2core.spec.roles import declared
from gpt2core.spec.series import COMMIT
from taskloom.contract.results import TrainResult
from taskloom.server import values
from taskloom.server.errors import BadResult, InvalidRequest
from taskloom.server.queue.attempts import resolved
from taskloom.server.queue.attempts.digest import lasting

COMPRESSION_LEVEL = 6
# Settings that analyses read. The result must contain them, also those that the run left open.
RESOLVED = declared("resolved")
MEASURED = 1.01  # tolerance between two clocks: analysis.efficiency.waiting_split
LARGE_BYTES = 1 << 20
_large = threading.Lock()  # serialises checks of larger payloads, which need several times their size when parsed


@dataclass(frozen=True)
class Figures:
    """Figures of a result for lists, by their columns; null for a run without a timed step."""

    median_step_s: float | None = None
    tokens_per_s: float | None = None
    final_loss: float | None = None
    resolved: dict[str, Any] | None = None  # settings that the trainer chose
    phase_s: dict[str, float] | None = None  # the median of each over the timed steps
    flagged_steps: int | None = None  # number of timed steps that the trainer flagged
    environment_sha256: str | None = None  # equal for runs with the same software on the same machine
    node_time: dict[str, float] | None = None  # seconds of the node by part; null: the trainer does not report them


@dataclass(frozen=True)
class Payload:
    """A checked payload."""

    result: dict[str, Any] | None
    error: dict[str, Any] | None
    compressed: bytes


def pack(text: str) -> bytes:
    return zlib.compress(text.encode(), COMPRESSION_LEVEL)


def unpack(compressed: bytes) -> dict[str, Any]:
    """The payload as JSON."""
    payload: dict[str, Any] = json.loads(zlib.decompress(compressed))
    return payload


def check(text: str, sha256: str, outcome: str, spec: Mapping[str, Any]) -> Payload:
    """Check a payload against its hash, its outcome, the result's schema and the run's spec. Raises BadResult, or
    BodyTooComplex beyond the limits of JSON.
    """
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise BadResult("the payload is not valid Unicode") from None
    if hashlib.sha256(encoded).hexdigest() != sha256:
        raise BadResult("the payload's SHA-256 differs from `sha256`: the payload was damaged in transit")
    with _large if len(encoded) > LARGE_BYTES else contextlib.nullcontext():
        try:
            payload = values.parse(encoded, values.RESULT)
        except json.JSONDecodeError as reason:
            raise BadResult(f"the payload is not JSON: {reason}") from None
        except InvalidRequest as reason:
            raise BadResult(f"the payload has a value that cannot be stored: {reason.fields['errors'][0]}") from None
        if not isinstance(payload, dict) or not set(payload) <= {"result", "error"}:
            raise BadResult("the payload is not an object with `result` and `error`")
        result, error = payload.get("result"), payload.get("error")
        if error is not None and not isinstance(error, dict):
            raise BadResult("`error` is not an object")
        if outcome == "succeeded" and (result is None or error is not None):
            raise BadResult("a succeeded run needs a `result` and no `error`")
        if outcome == "failed" and error is None:
            raise BadResult("a failed run needs an `error`")
        if result is not None:
            _check_result(result, spec)
        return Payload(result, error, zlib.compress(encoded, COMPRESSION_LEVEL))


def figures(result: dict[str, Any], queued_s: float = math.inf) -> Figures:
    """Figures of a checked result. Tokens per second are all tokens of the timed steps divided by their total time.

    queued_s: seconds between the run's queueing and its claim; earlier time of the node is not counted.
    """
    config = result["config"]
    timed_s = [float(s) for s in result["step_s"]][config["warmup"] :]
    tokens = tokens_per_step(config) * len(timed_s)
    environment = lasting(result["environment"])
    for name in COMMIT:  # another commit with the same sources of the trainer is the same software
        environment.pop(name, None)
    spans_s = {phase: spans[config["warmup"] :] for phase, spans in by_phase(result["phase_s"]).items()}
    return Figures(
        resolved=resolved.of_result(result),
        phase_s={phase: median(span_s) for phase, span_s in spans_s.items()} if timed_s else None,
        flagged_steps=sum(bool(reasons) for reasons in (result.get("flagged") or [])[config["warmup"] :]),
        environment_sha256=hashlib.sha256(json.dumps(environment, sort_keys=True).encode()).hexdigest(),
        median_step_s=median(timed_s) if timed_s else None,
        tokens_per_s=tokens / sum(timed_s) if sum(timed_s) > 0 else None,
        final_loss=float(result["losses"][-1]) if result["losses"] else None,
        node_time=_node_time(result, queued_s),
    )


def _node_time(result: Mapping[str, Any], queued_s: float) -> dict[str, float] | None:
    """Parts of the node's time. The time during which the node was idle before the run was queued is not counted."""
    given = result.get("node_time") or {}
    if "timed_s" not in given:
        return None
    return {name: min(s, queued_s) if name == "claiming_s" else s for name, s in given.items()}


def _check_result(found: object, spec: Mapping[str, Any]) -> None:
    """Raises BadResult unless the result is complete, its lists have the right lengths, and its settings are the
    run's."""
    try:
        result = TrainResult.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise BadResult(f"`result.{place}`: {first['msg']}" if place else f"`result`: {first['msg']}") from None
    config = _check_config(result.config, spec)
    steps = _steps(result, config)
    lists: dict[str, Sized] = {"step_s": result.step_s}
    if "loss" in config.phases or result.losses:
        lists["losses"] = result.losses
    if result.accuracy:
        lists["accuracy"] = result.accuracy
    every = config.evaluate_every
    evaluated = [each.step for each in result.evaluations]
    if evaluated != (list(range(every, steps + 1, every)) if every else []):
        raise BadResult(f"`result.evaluations` must follow every {every} of {steps} steps; 0: none")
    if config.generate and len(result.tokens or ()) != config.generate:
        raise BadResult(f"`result.tokens` has {len(result.tokens or ())} entries for {config.generate} tokens")
    if config.generate and result.time_to_first_token_s is None:
        raise BadResult("`result.time_to_first_token_s` is missing, which a result with `generate` needs")
    for name in MODES[config.mode].evidence:
        if getattr(result, name) is None:
            raise BadResult(f"`result.{name}` is missing, which a result of mode {config.mode} needs")
    for name, spans in (("phase_s", result.phase_s), ("phase_busy_s", result.phase_busy_s)):
        if set(spans) != set(config.phases):
            raise BadResult(f"`result.{name}` must have exactly the phases {', '.join(config.phases)}")
        lists |= {f"{name}.{phase}": entries for phase, entries in spans.items()}
    for name in ("flagged", "gradient_norms"):
        if getattr(result, name):
            lists[name] = getattr(result, name)
    for name, entries in lists.items():
        if len(entries) != steps:
            raise BadResult(f"`result.{name}` has {len(entries)} entries for {steps} steps")
    if len(result.threads) != config.threads:
        raise BadResult(f"`result.threads` has {len(result.threads)} entries for {config.threads} threads")
    timed_s = math.fsum(result.step_s[config.warmup_steps :])
    spent_s = math.fsum(t.useful_s + (t.barrier_s or 0.0) + (t.starvation_s or 0.0) + t.idle_s for t in result.threads)
    if spent_s > MEASURED * timed_s * config.threads:
        raise BadResult(
            f"`result.threads` adds up to {spent_s:g} s, more than {config.threads} threads have in {timed_s:g} s"
        )


def _steps(result: TrainResult, config: TrainConfig) -> int:
    """Number of steps that the run had to take: all, or up to its goal. Raises BadResult unless the result's goal
    agrees with its losses or accuracies."""
    goal = Goal.of({"stop_at": config.stop_at})
    if goal is None:
        return config.steps
    reached = goal.steps(result.losses if goal.metric == LOSS else result.accuracy)
    found = result.goal
    if found is None or (found.metric, found.value, found.steps) != (goal.metric, goal.value, reached):
        message = None if found is None else f"{found.metric} {found.value:g} after {found.steps} steps"
        needed = f"{goal.metric} {goal.value:g} after {reached} steps"
        raise BadResult(f"`result.goal` is {message}; by the result's own steps it is {needed}")
    if found.reached != (reached is not None) or (found.time_s is None) != (reached is None):
        raise BadResult("`result.goal` needs `reached`, `steps` and `time_s` together")
    return steps_run(reached, config.warmup_steps, config.steps)


def _check_config(given: Mapping[str, Any], spec: Mapping[str, Any]) -> TrainConfig:
    """The configuration of a result, which must agree with the run's. Worker and trainer choose the settings that the
    run left open. Raises BadResult."""
    missing = [name for name in RESOLVED if given.get(name) is None]
    if missing or not isinstance(given["model"], dict):
        raise BadResult(f"`result.config` lacks {', '.join(missing or ['the sizes of model'])}")
    try:
        config = TrainConfig.from_dict({name: value for name, value in given.items() if name in NAME_SET})
        requested = TrainConfig.from_dict({name: value for name, value in spec.items() if name in NAME_SET})
    except ConfigError as error:
        raise BadResult(f"`result.config.{error.field}`: {error}") from None
    chosen, expected = config.to_dict(), requested.to_dict() | {"warmup": requested.warmup_steps}
    if requested.cores is not None:  # in any order
        chosen["cores"], expected["cores"] = set(config.cores or ()), set(requested.cores)
    for name, value in expected.items():
        if value is not None and chosen.get(name) != value:
            raise BadResult(f"`result.config.{name}` is {chosen.get(name)!r}; the run asked for {value!r}")
    return config
