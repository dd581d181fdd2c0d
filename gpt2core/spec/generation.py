"""Runs that generate tokens: the settings that follow, those that do not fit, and the rate of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpt2core.spec.errors import ConfigError
from gpt2core.spec.fields import check_int
from gpt2core.spec.wording import enumerated, noun_for

if TYPE_CHECKING:
    from gpt2core.spec.config import TrainConfig

MOST_PROMPT = 1 << 16  # tokens
MOST_TEXT = 8 * MOST_PROMPT  # characters of a prompt
SETTINGS = ("generate", "prompt", "temperature")
# Settings that generation does not read, and why.
UNREAD = {
    "logits": "a step that generates has one position",
    "score": "a generated token has no successor to compare it with",
    "data": "generation reads the prompt",
    "distribution": "generation reads the prompt",
    "carry_state": "generation carries the state from token to token",
}
ONE_TOKEN = "a step reads one token of one sequence"
# By whether a run generates, the settings that are not read in mode infer, and why.
UNREAD_BY_USE: Mapping[str, Mapping[str, str]] = {
    "generate": {**UNREAD, **dict.fromkeys(("batch", "seq", "steps"), f"{ONE_TOKEN}, so it follows from generate")},
    "no-generate": dict.fromkeys(("prompt", "temperature"), "only generate reads it"),
}


def parse_prompt(value: object) -> tuple[int, ...]:
    """Token ids from "15496,995" or from a sequence of integers. Raises ConfigError."""
    accepted = f"1 to {MOST_PROMPT} token ids of 0 or more, such as 15496,995"
    if isinstance(value, str) and len(value) <= MOST_TEXT:
        parts = value.replace(",", " ").split()
        wrong = next((part for part in parts if not (part.isascii() and part.isdecimal() and len(part) < 10)), None)
        if wrong is not None:
            raise ConfigError("prompt", wrong, accepted)
        value = [int(part) for part in parts]
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MOST_PROMPT:
        raise ConfigError("prompt", value, accepted)
    for token in value:
        check_int("prompt", token, 0, (1 << 31) - 1, accepted)
    return tuple(value)


def generates(config: TrainConfig) -> bool:
    """Whether a run generates tokens: asked before the settings are checked."""
    count, prompt = config.generate, config.prompt
    fits = "generate" in config.model.settings and config.mode == "infer" and isinstance(prompt, tuple)
    return fits and isinstance(count, int) and count > 0


def determined(config: TrainConfig) -> dict[str, Any]:
    """Settings that follow from the prompt and the number of tokens. A step reads a token: the prompt is read before
    (spec/beside.py), and the last token is not read, unless it is the only one. Without generation none.
    """
    if not generates(config) or config.prompt is None:
        return {}
    if config.reads_prompt:
        return {"batch": 1, "seq": len(config.prompt), "steps": 1}
    return {"batch": 1, "seq": 1, "steps": max(1, config.generate - 1)}


def positions(config: TrainConfig) -> int:
    """Number of positions that a run which generates reads, those of the prompt first."""
    return len(config.prompt or ()) + max(1, config.generate - 1)


def conflicts(config: TrainConfig, defaults: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Settings that do not fit generation, or that only generation reads."""
    if not config.generate:
        for name in ("prompt", "temperature"):
            if getattr(config, name) != defaults[name]:
                yield ConfigError(name, _shown(config, name), f"the default {defaults[name]!r} without generate")
        return
    if config.mode != "infer" or "generate" not in config.model.settings:
        return  # modes and networks name the error
    if config.prompt is None:
        yield ConfigError("prompt", None, "token ids such as 15496,995 with generate")
        return
    for name, value in determined(config).items():
        if getattr(config, name) != value:
            accepted = f"{value} with generate ({config.generate}): "
            yield ConfigError(name, getattr(config, name), accepted + ONE_TOKEN)
    for name, why in UNREAD.items():
        if getattr(config, name) != defaults[name]:
            yield ConfigError(name, getattr(config, name), f"the default {defaults[name]!r}, since {why}")
    vocab, context, length = config.model.vocab, config.model.context, len(config.prompt)
    beyond = next((token for token in config.prompt if token >= vocab), None)
    if beyond is not None:
        yield ConfigError("prompt", beyond, f"token ids from 0 to {vocab - 1}, the model's vocabulary")
    if length >= context:
        accepted = f"at most {context - 1} tokens: the model's context is {context}"
        yield ConfigError("prompt", f"{length} tokens", accepted)
    elif length + config.generate > context:
        accepted = f"1 to {context - length}: the model's context is {context}, and the prompt has {length} tokens"
        yield ConfigError("generate", config.generate, accepted)


def read_bytes(config: TrainConfig) -> int:
    """Bytes of the weights that a token reads."""
    vectors = config.model.read_vectors()
    matrices = config.model.read_weights() - vectors
    return 4 * vectors + (2 if config.has_half_weights else 4) * matrices


def rates(config: TrainConfig, environment: Mapping[str, Any], token_s: float) -> dict[str, Any]:
    """GB/s at which a step of this duration reads the weights, the node's measured triad with as many threads, and the
    share of it; both null if it was not measured, with the reason."""
    peaks = (environment.get("peaks") or {}).get("threads") or {}
    rate, triad = read_bytes(config) / token_s / 1e9, (peaks.get(str(config.threads)) or {}).get("triad_gb_per_s")
    return {
        "weights_gb_per_s": rate,
        "triad_gb_per_s": triad,
        "triad_share": rate / triad if triad else None,
        "triad_missing": None if triad else _unmeasured(config.threads, peaks),
    }


def _unmeasured(threads: int, peaks: Mapping[str, Any]) -> str:
    known = sorted(int(count) for count, found in peaks.items() if (found or {}).get("triad_gb_per_s"))
    if not known:
        return "the bandwidth of the node is not measured; taskloom doctor --peaks measures it"
    counts = f"{enumerated(known)} {noun_for(sum(known), 'thread')}"
    return f"the bandwidth of the node is measured with {counts}, not with {threads}"


def _shown(config: TrainConfig, name: str) -> Any:
    value = getattr(config, name)
    return list(value) if isinstance(value, tuple) else value
