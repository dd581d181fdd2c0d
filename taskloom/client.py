"""The Python client: one method for each operation. Answers are the contract's models, errors are exceptions."""

from __future__ import annotations

import hashlib
import io
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pydantic_core import from_json, to_json

from gpt2core.spec import files
from taskloom import events, frames, request_file
from taskloom.analyses import Analyses
from taskloom.connection import parameters, understood
from taskloom.contract.artifacts import ArtifactList
from taskloom.contract.demand import PoolPage, PoolSummary, QueuedRun, QueuedRunPage
from taskloom.contract.experiments import (
    ExperimentChange,
    ExperimentPage,
    ExperimentRequest,
    ExperimentSummary,
    Tune,
)
from taskloom.contract.extensions import ExperimentExtension
from taskloom.contract.filters import Filtered, FilterName, FilterNames
from taskloom.contract.keys import Identity, KeyCreated, KeyPage, KeyRequest, KeySummary
from taskloom.contract.overview import Overview
from taskloom.contract.plans import DryRun
from taskloom.contract.retention import PruneReport, PruneRequest
from taskloom.contract.runs import (
    LogPage,
    RunDetail,
    RunPage,
    RunRow,
    SampleList,
    StateChange,
    StateChangePage,
    StepPage,
)
from taskloom.contract.samples import RunSamples, SamplesPage
from taskloom.contract.tuned import TunedSetting, TunedSettingPage
from taskloom.contract.variants import VariantRow, VariantTable
from taskloom.contract.webhooks import (
    DeliveryPage,
    DeliverySummary,
    WebhookCreated,
    WebhookPage,
    WebhookRequest,
    WebhookSummary,
)
from taskloom.contract.workers import WorkerPage, WorkerSummary
from taskloom.errors import NotUnderstood
from taskloom.events import Event
from taskloom.experiment import Experiment

if TYPE_CHECKING:  # it loads NumPy, which few methods need
    from taskloom.analysis.tuning.answer import Tuning


def _request(request: ExperimentRequest | Mapping[str, Any] | None, fields: Mapping[str, Any]) -> ExperimentRequest:
    if isinstance(request, ExperimentRequest) and not fields:
        return request
    given = request.model_dump(exclude_unset=True) if isinstance(request, ExperimentRequest) else request or {}
    if not isinstance(given, Mapping):
        return request_file.parse(given)  # which refuses it
    return request_file.parse(from_json(to_json({**given, **fields}, fallback=_plain)))


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's; anything else as text, of which the server says what it accepts."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


class Client(Analyses):
    """Client of one server. Threads may share it. Close it, or use it in `with`."""

    def submit(
        self, request: ExperimentRequest | Mapping[str, Any] | None = None, idempotency_key: str | None = None,
        **fields: Any,
    ) -> Experiment:  # fmt: skip
        """Queue an experiment: a request as a model or a mapping, or its fields as keywords.

        idempotency_key: a repeated request with the same key queues nothing new. Raises ConfigError or
        BadRequest, which name each field that is not accepted.
        """
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        return self._experiment("POST", "/experiments", body=_request(request, fields), headers=headers)

    def plan(self, request: ExperimentRequest | Mapping[str, Any] | None = None, **fields: Any) -> DryRun:
        """Return the runs that a submission would become, without queueing them. Arguments as of `submit`."""
        return self._ask("POST", "/experiments", DryRun, body=_request(request, fields), query={"dry_run": "true"})

    def experiments(self, **filters: Any) -> Iterator[ExperimentSummary]:
        """Experiments, newest first, or sorted by `sort` ("-finished_at").

        filters: `state`, `name`, `submitter`, `group`, `label`, `tag`, `filter` (an expression), `commit`, `branch`,
        `dirty`, `version`, `since`, `until`, `finished_since`, `finished_until`; instants as "7d" or a datetime;
        several values as a list.
        """
        return self._pages(lambda query: self._page("/experiments", ExperimentPage, query), parameters(filters))

    def experiment(self, experiment_id: int) -> Experiment:
        return self._experiment("GET", f"/experiments/{experiment_id}")

    def change_experiment(self, experiment_id: int, change: ExperimentChange) -> Experiment:
        """Change its name, tags or notes."""
        return self._experiment("PATCH", f"/experiments/{experiment_id}", body=change)

    def cancel_experiment(self, experiment_id: int) -> Experiment:
        return self._experiment("POST", f"/experiments/{experiment_id}/cancel")

    def extend_experiment(self, experiment_id: int, repetitions: int) -> Experiment:
        """Queue further repetitions of a finished experiment. Raises ConfigError or BadRequest."""
        request = request_file.checked({"repetitions": repetitions}, ExperimentExtension)
        return self._experiment("POST", f"/experiments/{experiment_id}/extend", body=request)

    def retry_experiment(self, experiment_id: int) -> Experiment:
        """Queue every failed, cancelled or quarantined run of an experiment again."""
        return self._experiment("POST", f"/experiments/{experiment_id}/retry")

    def runs(
        self, experiment_id: int | None = None, state: str | Sequence[str] | None = None, **filters: Any
    ) -> Iterator[RunRow]:
        """Runs in planned order, or sorted by `sort` ("-id": newest first).

        filters: `run` (ids), `node`, `label`, `filter` ("median_step_s < 0.1 and threads = 2", or {"threads": 2}),
        `flagged`, `commit`, `branch`, `dirty`, `version`, `trainer_commit` and so on,
        `since`, `until`, `finished_since`, `finished_until`;
        instants as "7d" or a datetime; several values as a list.
        """
        query = parameters({"experiment_id": experiment_id, "state": state, **filters})
        return self._pages(lambda each: self._page("/runs", RunPage, each), query)

    def filter_names(self, of: Filtered = "runs") -> list[FilterName]:
        """List the names that `filter` accepts for runs, experiments or series, with operators and values."""
        return list(self._ask("GET", f"/filters/{of}", FilterNames).items)

    def run(self, run_id: int) -> RunDetail:
        return self._ask("GET", f"/runs/{run_id}", RunDetail)

    def cancel_run(self, run_id: int) -> RunDetail:
        return self._ask("POST", f"/runs/{run_id}/cancel", RunDetail)

    def retry_run(self, run_id: int) -> RunDetail:
        """Queue a failed, cancelled or quarantined run again."""
        return self._ask("POST", f"/runs/{run_id}/retry", RunDetail)

    def wait(self, experiment_id: int, timeout_s: float | None = None) -> Experiment:
        """Wait until the experiment has ended, and return it with its verdict. Raises TimeoutError after `timeout_s`
        seconds."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        for event in self.events(f"experiment:{experiment_id}", until=until):
            if event.event == "ended":
                return self.experiment(experiment_id).judged()
        raise TimeoutError(f"experiment {experiment_id} has not ended within {timeout_s:g} s")

    def events(self, *topics: str, until: float | None = None) -> Iterator[Event]:
        """Iterate over events of topics ("overview", "workers", "experiment:7", "run:12") until all have ended.

        A lost stream continues after its last event. until: an instant of time.monotonic() at which to stop.
        """
        return events.listen(self._http, self.server, topics, until)

    def overview(self) -> Overview:
        """Return the queue, the workers, recently ended runs and alerts."""
        return self._ask("GET", "/overview", Overview)

    def whoami(self) -> Identity:
        """Return the caller's identity and scope."""
        return self._ask("GET", "/whoami", Identity)

    def queue(self) -> Iterator[QueuedRun]:
        """Iterate over the queued runs in the order of claims, with what they wait for."""
        return self._pages(lambda query: self._page("/queue/runs", QueuedRunPage, query), {})

    def tune(self, base: dict[str, Any], space: dict[str, list[Any]], **more: Any) -> Experiment:
        """Queue a tuning: a search of the best setting of a space.

        more: `exclude`, `name` and the request's other fields; `runs`, `confirm`, `fresh` and all of `tune`.
        """
        terms = {name: more.pop(name) for name in list(more) if name in Tune.model_fields}
        return self.submit(base=base, space=space, tune=terms, **more)

    def tuning(self, experiment_id: int) -> Tuning:
        """Return the answer of a tuning so far."""
        from taskloom.analysis.tuning.answer import Tuning

        return understood(self._send("GET", f"/experiments/{experiment_id}/tuning"), Tuning)

    def tuned(self, base: dict[str, Any] | None = None) -> Iterator[TunedSetting]:
        """Iterate over the settings that tunings have confirmed, newest first. base: only those of its problem."""
        query = {} if base is None else {"base": json.dumps(base)}
        return self._pages(lambda each: self._page("/tuned", TunedSettingPage, each), query)

    def variants(self, experiment_id: int) -> list[VariantRow]:
        """Return a flat row for each variant of an experiment."""
        return list(self._ask("GET", f"/experiments/{experiment_id}/variants", VariantTable).rows)

    def export(self, table: str, target: Path | str, format: str | None = None, **filters: Any) -> None:
        """Write a table ("experiments", "runs", "steps", "ops", "variants", "history",
        "tuning_trials") to a file, completely or not at all.

        format: csv, ndjson, parquet or arrow; None: by the file's name. filters: those of `runs` (for "experiments"
        those of `experiments`), and `columns`. Raises ConfigError or OSError.
        """
        target = Path(target)
        format = format or frames.format_of(target)
        with files.replacing(target) as part, part.open("wb") as file:
            self._stream(f"/exports/{table}", file.write, {**parameters(filters), "format": format})

    def frame(self, table: str, library: str | None = None, **filters: Any) -> Any:
        """Return a table ("experiments", "runs", "steps", "ops", "variants", "history",
        "tuning_trials") as a data frame of pandas or polars.

        library: "pandas" or "polars"; None: the installed one, pandas first. filters: as of `export`. Raises
        ConfigError or FrameLibraryMissing.
        """
        make = frames.maker(library)
        content = io.BytesIO()
        self._stream(f"/exports/{table}", content.write, {**parameters(filters), "format": "ndjson"})
        return make(content.getvalue(), filters.get("columns"))

    def samples(self, run_id: int) -> SampleList:
        """Return every timed step of the run's result."""
        return self._ask("GET", f"/runs/{run_id}/samples", SampleList)

    def samples_of(self, runs: str) -> Iterator[RunSamples]:
        """Iterate over the timed steps of the succeeded runs of a selection."""
        return self._pages(lambda query: self._page("/samples", SamplesPage, query), {"runs": runs})

    def result(self, run_id: int) -> dict[str, Any]:
        """Return the run's complete raw result, as the trainer wrote it."""
        answer = self._send("GET", f"/runs/{run_id}/result")
        content = answer.json()
        if not isinstance(content, dict):
            raise NotUnderstood(f"the answer of {answer.request.url} is not a JSON object")
        return content

    def log(self, run_id: int, cursor: str | None = None, tail: int | None = None) -> LogPage:
        """Return the output of the run's trainers after `cursor`; with `tail`, only this many of its last lines."""
        query: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
        if tail is not None:
            query["tail"] = tail
        return self._ask("GET", f"/runs/{run_id}/log", LogPage, query=query)

    def steps(self, run_id: int, cursor: str | None = None) -> StepPage:
        """Return the steps of a running run after `cursor`."""
        return self._ask("GET", f"/runs/{run_id}/steps", StepPage, query={"cursor": cursor} if cursor else {})

    def run_changes(self, run_id: int) -> Iterator[StateChange]:
        """Iterate over every change of state of the run and its attempts, oldest first."""
        return self._pages(lambda query: self._page(f"/runs/{run_id}/changes", StateChangePage, query), {})

    def experiment_changes(self, experiment_id: int) -> Iterator[StateChange]:
        """Iterate over every change of state of an experiment's runs and their attempts, oldest first."""
        path = f"/experiments/{experiment_id}/changes"
        return self._pages(lambda query: self._page(path, StateChangePage, query), {})

    def artifacts(self, run_id: int) -> ArtifactList:
        """List the files of the run's attempts."""
        return self._ask("GET", f"/runs/{run_id}/artifacts", ArtifactList)

    def download_artifact(self, run_id: int, name: str, target: Path) -> None:
        """Write a run's file to `target`, completely or not at all. Raises OSError if `target` cannot be written."""
        sha256 = hashlib.sha256()
        with files.replacing(target) as part, part.open("wb") as file:

            def write(chunk: bytes) -> None:
                file.write(chunk)
                sha256.update(chunk)

            etag = self._stream(f"/runs/{run_id}/artifacts/{quote(name, safe='')}", write)
            if etag != f'"{sha256.hexdigest()}"':
                raise NotUnderstood(f"artifact {name} of run {run_id} was damaged in transfer; try again")

    def workers(self) -> Iterator[WorkerSummary]:
        return self._pages(lambda query: self._page("/workers", WorkerPage, query), {})

    def pools(self) -> list[PoolSummary]:
        """List the pools that provisioners have reported."""
        return list(self._ask("GET", "/queue/pools", PoolPage).items)

    def confirm(self, run_id: int) -> Experiment:
        """Queue fresh runs that confirm or dismiss the change at this run."""
        return self._experiment("POST", f"/analysis/history/{run_id}/confirm")

    def prune(self, request: PruneRequest) -> PruneReport:
        """Delete old runs, some with each request. Repeat it while `more` of the answer is true."""
        return self._ask("POST", "/prune", PruneReport, body=request)

    def create_webhook(self, request: WebhookRequest) -> WebhookCreated:
        """Create a webhook. Only this answer contains its secret."""
        return self._ask("POST", "/webhooks", WebhookCreated, body=request)

    def webhooks(self) -> Iterator[WebhookSummary]:
        return self._pages(lambda query: self._page("/webhooks", WebhookPage, query), {})

    def delete_webhook(self, webhook_id: int) -> None:
        self._send("DELETE", f"/webhooks/{webhook_id}")

    def deliveries(self, webhook_id: int) -> Iterator[DeliverySummary]:
        """Iterate over the deliveries of a webhook, newest first: delivered, waiting or given-up."""
        return self._pages(lambda query: self._page(f"/webhooks/{webhook_id}/deliveries", DeliveryPage, query), {})

    def create_key(self, request: KeyRequest) -> KeyCreated:
        """Create a key. Only this answer contains its token."""
        return self._ask("POST", "/keys", KeyCreated, body=request)

    def keys(self) -> Iterator[KeySummary]:
        return self._pages(lambda query: self._page("/keys", KeyPage, query), {})

    def revoke_key(self, key_id: int) -> KeySummary:
        return self._ask("POST", f"/keys/{key_id}/revoke", KeySummary)

    def _experiment(self, method: str, path: str, **more: Any) -> Experiment:
        found = self._ask(method, path, Experiment, **more)
        found._client = self
        return found
