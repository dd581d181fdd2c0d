"""Uploaded results: their text is kept as it came; here it is checked, and figures for lists are derived from it."""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from dataclasses import dataclass
from typing import Any, NoReturn

from gpt2core.spec.config import PHASES
from gpt2core.spec.result import READABLE, median, tokens_per_step
from taskloom.server.errors import BadResult

COMPRESSION_LEVEL = 6
# What only a few analyses read, and much of a result.
HEAVY = frozenset({"ops", "threads", "memory_bytes", "resident_bytes", "graph", "counters", "summary", "warnings"})
MOMENTARY = frozenset({"load_average"})  # of the environment: what is another value with every run


@dataclass(frozen=True)
class Figures:
    """What lists show of a result; null where a run has no timed step."""

    median_step_s: float | None = None
    tokens_per_s: float | None = None
    final_loss: float | None = None
    phase_s: dict[str, float] | None = None  # the median of each over the timed steps
    flagged_steps: int | None = None  # timed ones that the trainer flagged
    environment_sha256: str | None = None  # equal for runs of equal software on equal machines


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


def check(text: str, sha256: str, outcome: str) -> Payload:
    """Raises BadResult where the text is not what its hash, its outcome or the result's schema say."""
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise BadResult("the payload is no valid Unicode") from None
    if hashlib.sha256(encoded).hexdigest() != sha256:
        raise BadResult("the payload's SHA-256 is another one than `sha256`: it was damaged on its way")
    try:
        payload = json.loads(text, parse_constant=_refuse_constant)
    except (json.JSONDecodeError, RecursionError) as reason:
        raise BadResult(f"the payload is not JSON: {reason}") from None
    if not isinstance(payload, dict) or not set(payload) <= {"result", "error"}:
        raise BadResult("the payload is not an object with `result` and `error`")
    result, error = payload.get("result"), payload.get("error")
    if error is not None and not isinstance(error, dict):
        raise BadResult("`error` is no object")
    if outcome == "succeeded" and (result is None or error is not None):
        raise BadResult("a run that succeeded has a `result` and no `error`")
    if outcome == "failed" and error is None:
        raise BadResult("a run that failed has an `error`")
    if result is not None:
        _check_result(result)
    return Payload(result, error, zlib.compress(encoded, COMPRESSION_LEVEL))


def digest(result: dict[str, Any]) -> bytes:
    """What lists of runs, history, calibration, comparisons, scaling and sweeps read of a result, as JSON."""
    kept = {name: value for name, value in result.items() if name not in HEAVY}
    validity = result.get("validity") or {}
    return json.dumps({**kept, "validity": {"foreign": validity.get("foreign")}}, separators=(",", ":")).encode()


def figures(result: dict[str, Any]) -> Figures:
    """Median step, tokens per second (total work by total time) and last loss of a checked result."""
    config = result["config"]
    timed_s = [float(s) for s in result["step_s"]][config["warmup"] :]
    tokens = tokens_per_step(config) * len(timed_s)
    environment = {name: value for name, value in result["environment"].items() if name not in MOMENTARY}
    spans_s = {phase: result["phase_s"][phase][config["warmup"] :] for phase in PHASES}
    return Figures(
        phase_s={phase: median(span_s) for phase, span_s in spans_s.items()} if timed_s else None,
        flagged_steps=sum(bool(reasons) for reasons in (result.get("flagged") or [])[config["warmup"] :]),
        environment_sha256=hashlib.sha256(json.dumps(environment, sort_keys=True).encode()).hexdigest(),
        median_step_s=median(timed_s) if timed_s else None,
        tokens_per_s=tokens / sum(timed_s) if sum(timed_s) > 0 else None,
        final_loss=float(result["losses"][-1]) if result["losses"] else None,
    )


def _refuse_constant(name: str) -> NoReturn:
    raise BadResult(f"the payload holds {name}, which is no JSON")


def _check_result(result: object) -> None:
    if not isinstance(result, dict) or result.get("schema") not in READABLE:
        raise BadResult("`result` is no object with `schema` " + " or ".join(READABLE))
    config = result.get("config")
    if not isinstance(config, dict) or not all(_is_count(config.get(k)) for k in ("batch", "seq", "steps", "warmup")):
        raise BadResult("`result.config` lacks batch, seq, steps or warmup")
    if not _is_count(config.get("grad_accum", 1)):
        raise BadResult("`result.config.grad_accum` is no number of micro-batches")
    losses, step_s, phase_s = (result.get(k) for k in ("losses", "step_s", "phase_s"))
    if not isinstance(phase_s, dict) or set(phase_s) != set(PHASES):
        raise BadResult("`result.phase_s` has not the phases " + ", ".join(PHASES))
    for name, values in (("losses", losses), ("step_s", step_s), *phase_s.items()):
        if not isinstance(values, list) or not all(_is_number(v) for v in values):
            raise BadResult(f"`{name}` is no list of finite numbers")
        if not isinstance(step_s, list) or len(values) != len(step_s):
            raise BadResult(f"`{name}` and `step_s` are not equally long")
    for name, kind in (("environment", dict), ("weights_sha256", str)):
        if not isinstance(result.get(name), kind):
            raise BadResult(f"`result.{name}` is missing")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
