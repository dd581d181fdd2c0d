"""Examples of answers, built from their schemas: fields of the same name have the same meaning and example."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpt2core.spec.phases import PASSES, PHASES

Schema = Mapping[str, Any]
WHEN = "2026-01-31T12:00:00Z"
SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
VARIANT = {"scheduler": "task", "threads": 2}
ARENAS_BYTES = {"weights": 497_759_232, "gradients": 497_759_232, "optimizer": 995_518_464, "activations": 210_763_776}
PHASES_S = {**dict.fromkeys(PHASES, 0.003), "data": 0.0001, "forward": 0.014, "backward": 0.022}
# By field name, or by model and field where a model uses the name differently.
KNOWN: dict[str, Any] = {
    "ci95_step_s": [0.041, 0.043],
    "a": "fork-join",
    "actor": "key:3",
    "at": WHEN,
    "attempts": 1,
    "axes": {"scheduler": ["fork-join", "task"], "threads": [1, 2]},
    "axis": "scheduler",
    "b": "task",
    "base": "speedup: one thread of the same scheduler and slices, 0.081 s",
    "batch": 4,
    "boot_id": "0f3c6a52-1",
    "by_state": {"queued": 10, "running": 2, "succeeded": 12},
    "SizedShape.bytes": ARENAS_BYTES,
    "bytes": 4096,
    "conclusion": "Tasks are 1.7 % faster than fork-join on two threads.",
    "config": {"model": "gpt2-124m", "batch": 4, "seq": 64, **VARIANT},
    "core_set": "0-1",
    "cores": [0, 1],
    "created_at": WHEN,
    "cursor": "YWZ0ZXI6MTI",
    "cv": 0.004,
    "data": "stdlib",
    "detail": "the trainer ended with signal 9",
    "diagnosis": [],
    "differs": [],
    "error": None,
    "evidence": "480 timed steps of 24 processes, all in this report",
    "experiment_id": 3,
    "final_loss": 4.61,
    "finished_at": WHEN,
    "graph": {"edges": 5130.0, "tasks": 2248.0},
    "group": "vision",
    "high": 0.0423,
    "job_id": "4711",
    "known": {"cpu": "AMD EPYC 9654"},
    "labels": {"partition": "cpu"},
    "log_ratios": [0.004, -0.002, 0.001],
    "loss": 4.61,
    "low": 0.0418,
    "machine": {"node": "node-7"},
    "machine_boot_id": "5d0e2c1b",
    "marks": [],
    "measured_bytes": ARENAS_BYTES,
    "media_type": "application/gzip",
    "median": 0.042,
    "TrainResult.memory_bytes": ARENAS_BYTES,
    "memory_bytes": 1 << 33,
    "missing": [],
    "model": "gpt2-124m",
    "n": 12,
    "ArtifactReceipt.name": "trace.json.gz",
    "ArtifactSummary.name": "trace.json.gz",
    "KeyCreated.name": "dashboard",
    "KeySummary.name": "dashboard",
    "PoolSummary.name": "cpu",
    "name": "fork-join or tasks?",
    "next_cursor": "YWZ0ZXI6MTI",
    "node": "node-7",
    "noise_floor": 0.01,
    "notes": "before the new kernel",
    "op": "linear_forward",
    "order": "interleaved",
    "p_adjusted": 0.0008,
    "p_value": 0.0002,
    "paired": True,
    "pairs": 12,
    "per_sequence_bytes": {"activations": 52_690_944},
    "per_token_bytes": {"activations": 823_296},
    "Tuning.phase": "ended",
    "TuningState.phase": "explore",
    "ExperimentEvent.phase": "explore",
    "Tuning.base": {"model": "gpt2-124m", **VARIANT},
    "Tuning.best": VARIANT,
    "Tuning.reason": "complete",
    "TuningState.reason": "complete",
    "phase": "forward",
    "phase_busy_s": {name: [seconds] for name, seconds in PHASES_S.items()},
    "TrainResult.phase_s": {name: [seconds] for name, seconds in PHASES_S.items()},
    "phase_s": PHASES_S,
    "phase_scalability": dict.fromkeys(PASSES, 0.98),
    "preempted": [[0, "fc", 0.0019, 0.0021]],
    "planned_bytes": ARENAS_BYTES,
    "precision": "fp32",
    "primary_metric": "median step time",
    "ReportDesign.problem": {"model": "gpt2-124m", "batch": 4, "seq": 64},
    "problem": None,
    "q1": 0.0419,
    "q3": 0.0422,
    "question": "fork-join or tasks?",
    "ratio": 1.017,
    "ratio_high": 1.023,
    "ratio_low": 1.011,
    "ratio_middle": 1.016,
    "QueuePlace.reason": "all-busy",
    "reason": "all 12 pairs agree",
    "request": {"name": "fork-join or tasks?", "axes": {"scheduler": ["fork-join", "task"]}},
    "resident_bytes": ARENAS_BYTES,
    "rule": "Raw samples are kept",
    "run_id": 12,
    "runs": 24,
    "scheduler": "task",
    "secret": SHA256,
    "scope": "places like these",
    "sentence": "Tasks are 1.7 % faster than fork-join on two threads.",
    "seq": 64,
    "sha256": SHA256,
    "slices": "1x64",
    "slug": "killed",
    "software": {"core_hash": "9f86d081"},
    "source_run_ids": {"task": 12, "fork-join": 13},
    "spans": [[0, "fc", "forward", 0.0, 0.0021]],
    "spec": {"model": "gpt2-124m", "batch": 4, "seq": 64, "steps": 20, **VARIANT},
    "state": "running",
    "step": 3,
    "steps": 20,
    "TracedSteps.steps": [[2, 0.0, 0.042]],
    "submitter": "key:3",
    "submitter_name": "dashboard",
    "superiority": 0.93,
    "tags": ["nightly"],
    "sync": "step",
    "text": "step 3: loss 4.61",
    "threads": 2,
    "title": "Not found",
    "token": "tlk_3_9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "token_slice": 64,
    "tokens_per_s": 6095.2,
    "topology": {"cpu": "AMD EPYC 9654", "sockets": 1},
    "type": "/problems/not-found",
    "unit": "pairs",
    "url": "https://ci.example.org/hooks/taskloom",
    "variant": VARIANT,
    "verb": "claim",
    "waiting_for": "worker node-7 runs something else",
    "warnings": [],
    "waits": [[1, "barrier", 0.0408, 0.042]],
    "weights_sha256": SHA256,
    "outputs_sha256": None,
    "outputs_sketch": None,
    "latency": None,
    "worker_id": "node-7:0-1",
}


class Examples:
    """Examples of one OpenAPI document."""

    def __init__(self, document: Schema) -> None:
        self._schemas: Mapping[str, Schema] = document["components"]["schemas"]

    def of(self, schema: Schema, model: str = "", field: str = "") -> Any:
        """A value that the schema allows. Text without an example is its field's name."""
        if "$ref" in schema:
            name = schema["$ref"].rsplit("/", 1)[-1]
            return self.of(self._schemas[name], name)
        if "examples" in schema:
            return schema["examples"][0]
        for known in (f"{model}.{field}", field):
            if field and known in KNOWN and _fits(KNOWN[known], schema):
                return KNOWN[known]
        if "const" in schema or "enum" in schema:
            return schema.get("const", schema.get("enum", [None])[0])
        choices = schema.get("anyOf", schema.get("oneOf"))
        if choices is not None:
            return self.of(next(choice for choice in choices if choice.get("type") != "null"), model, field)
        return self._of_type(schema, model, field)

    def _of_type(self, schema: Schema, model: str, field: str) -> Any:
        match schema.get("type"):
            case "object":
                return {name: self.of(part, model, name) for name, part in schema.get("properties", {}).items()}
            case "array":
                parts = schema.get("prefixItems") or [schema["items"]]
                return [self.of(part, model, field.removesuffix("s")) for part in parts]
            case "integer":
                return 1 << 20 if field.endswith("bytes") else 1
            case "number":
                return 0.042 if field.endswith("_s") else 1.0
            case "boolean":
                return False
            case "string":
                return WHEN if schema.get("format") == "date-time" else field
        return {}


JSON_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def _fits(value: object, schema: Schema) -> bool:
    """Whether the value is of the schema's type: some names are counts here and lists there."""
    if "anyOf" in schema:
        return any(_fits(value, choice) for choice in schema["anyOf"])
    if "$ref" in schema or value not in schema.get("enum", [schema.get("const", value)]):
        return False
    kind = JSON_TYPES.get(schema.get("type", ""))
    return kind is None or isinstance(value, kind)
