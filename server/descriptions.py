"""Descriptions of all fields and parameters in the OpenAPI document: the one at the field itself, else the meaning of
its name. The unit follows from the end of the name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taskloom.server.analysis_meanings import ANALYSES
from taskloom.server.meanings import MEANINGS
from taskloom.server.tuning_meanings import TUNING

ALL = MEANINGS | ANALYSES | TUNING

# By the end of a name; the longest end counts.
UNITS = {
    "_at": "UTC",
    "_s": "seconds",
    "_bytes": "bytes",
    "_gflop_per_s": "GFLOP/s",
    "_gb_per_s": "GB/s",
    "_j": "joules",
    "tokens_per_s": "tokens a second",
}


def meaning(model: str, name: str) -> str | None:
    """The meaning of a field; None if it has none."""
    found = ALL.get(f"{model}.{name}", ALL.get(name))
    bound = "lower" if name.endswith("_low") else "upper" if name.endswith("_high") else None
    return found or (f"{bound} bound of the 95 % interval; null: none" if bound else None)


def with_unit(name: str, text: str) -> str:
    """The description with the unit that the end of the name stands for."""
    unit = next((UNITS[end] for end in sorted(UNITS, key=len, reverse=True) if name.endswith(end)), None)
    if unit is None or unit.rstrip("s") in text:
        return text
    first, mark, rest = text.partition(";")
    return f"{first}, {unit}{mark}{rest}"


def describe(document: dict[str, Any]) -> None:
    """Give each field and parameter of an OpenAPI document its meaning and its unit."""
    for model, schema in document["components"]["schemas"].items():
        for name, field in schema.get("properties", {}).items():
            _describe(field, model, name)
    for methods in document["paths"].values():
        for operation in methods.values():
            for parameter in operation.get("parameters", ()):
                _describe(parameter, operation["operationId"], parameter["name"])


def _describe(field: dict[str, Any], model: str, name: str) -> None:
    text = field.get("description") or meaning(model, name)
    if text is not None:
        field["description"] = with_unit(name, text)


def undescribed(document: Mapping[str, Any]) -> list[str]:
    """Fields and parameters of an OpenAPI document without a description."""
    schemas = document["components"]["schemas"]
    fields = [(f"{model}.{name}", field) for model, of in schemas.items()
              for name, field in of.get("properties", {}).items()]  # fmt: skip
    parameters = [
        (f"{operation['operationId']}({parameter['name']})", parameter)
        for methods in document["paths"].values()
        for operation in methods.values()
        for parameter in operation.get("parameters", ())
    ]
    return [name for name, each in (*fields, *parameters) if not each.get("description")]
