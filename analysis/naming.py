"""Names of experiments that were submitted without one (the question and the model), and of configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from gpt2core.spec.config import DEFAULTS, TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.roles import MAIN, with_role
from gpt2core.spec.series import series_config
from gpt2core.spec.wording import counted, enumerated
from taskloom.analysis.wording import settings, value_text, words

MOST_VALUES = 5  # that are listed
MOST = 200  # characters of a name


def experiment_name(request: Mapping[str, Any]) -> str:
    """The name of a request: task or fork-join? tiny, 1 and 2 threads."""
    base = request.get("base") or {}
    axes = {name: values for part in (request.get("axes") or {}, *(request.get("zip") or [])) for name, values
            in part.items()}  # fmt: skip
    if request.get("builds"):
        axes["build"] = request["builds"]
    question, used = _question(request, axes)
    model = "" if "model" in axes else _model(base.get("model", base.get("network", DEFAULTS["model"].name)))
    mode = "inference" if base.get("mode") == "infer" else ""
    varied = [_listed(name, values, "and") for name, values in axes.items() if name not in used]
    single = not axes and not request.get("space")
    fixed = [settings({name: base[name] for name in ("scheduler", "threads") if single and name in base})]
    text = ", ".join(filter(None, [model, mode, *varied, *fixed]))
    return f"{question} {text}".strip()[:MOST]


def configuration(config: Mapping[str, Any]) -> str:
    """A configuration by its main settings, and by all others of its series that are not the network's default: tiny,
    inference, task, slices 1x64, batch 4, 2 threads, data synthetic."""
    shown = {name: config[name] for name in MAIN if name not in with_role("length") and config.get(name) is not None}
    defaults = _defaults(config.get("model"))
    others = {name: value for name, value in series_config(config).items()
              if name not in (*MAIN, "mode", "model") and value not in (None, defaults.get(name))}  # fmt: skip
    mode = ["inference"] if config.get("mode") == "infer" else []
    return ", ".join(filter(None, [_model(shown.pop("model", {})), *mode, settings(shown), settings(others)]))


def _defaults(model: Any) -> Mapping[str, Any]:
    """The default of each setting for a model; of an unknown one those of GPT-2."""
    try:
        return TrainConfig.from_dict({"model": model}).to_dict()
    except ConfigError:
        return DEFAULTS


def _model(given: Any) -> str:
    return given if isinstance(given, str) else str(given.get("name") or f"custom {given.get('network', 'gpt2')}")


def _question(request: Mapping[str, Any], axes: Mapping[str, Sequence[Any]]) -> tuple[str, set[str]]:
    """The question, and the axes that it names."""
    if request.get("calibrates"):
        return "calibration:", set()
    if request.get("space"):
        return f"which {enumerated(map(words, request['space']))}?", set()
    primary = request.get("primary")
    if primary:
        a, b = ({name: value for name, value in primary[side].items() if primary[other].get(name) != value}
                for side, other in (("a", "b"), ("b", "a")))  # fmt: skip
        return f"{settings(a)} or {settings(b)}?", {name for name in (*a, *b) if len(axes.get(name, ())) == 2}
    several = [name for name, values in axes.items() if len(values) > 1]
    if not several:
        return "", set()
    name = "scheduler" if "scheduler" in several else several[0]
    return f"{_listed(name, axes[name], 'or')}?", {name}


def _listed(name: str, values: Sequence[Any], word: str) -> str:
    """The values of an axis: 1 and 2 threads; token slice 16, 32 or 64; 8 values of batch slice."""
    label = words(name)
    if len(values) > MOST_VALUES:
        return f"{counted(len(values), 'value')} of {label}"
    if name == "threads":
        unit = "thread" if list(values) == [1] else "threads"
        return f"{enumerated(values, word)} {unit}"
    of_value = {"model": _model}.get(name, partial(value_text, name))
    names = [of_value(value) for value in values]
    return enumerated(names, word) if name in ("scheduler", "model") else f"{label} {enumerated(names, word)}"
