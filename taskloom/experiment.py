"""Experiments of the Python client: the contract's model with the methods of its client."""

from __future__ import annotations

import dataclasses
from html import escape
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr

from gpt2core.spec.wording import counted, enumerated
from taskloom.contract.experiments import ExperimentDetail, Verdict

if TYPE_CHECKING:
    from taskloom.client import Client


class Experiment(ExperimentDetail):
    """An experiment as the server described it. It does not change: `refresh`, `wait` and `judged` return another one.
    """

    _client: Client = PrivateAttr()

    @property
    def url(self) -> str:
        """Its page on the dashboard."""
        return f"{self._client.server}/ui/experiment?id={self.id}"

    def refresh(self) -> Experiment:
        """Return the experiment as it is now."""
        return self._client.experiment(self.id)

    def wait(self, timeout_s: float | None = None) -> Experiment:
        """Wait until it has ended, and return it with its verdict. Raises TimeoutError after `timeout_s` seconds."""
        return self._client.wait(self.id, timeout_s)

    def judged(self) -> Experiment:
        """Return the experiment with its verdict, computed now if the server has not stored one yet."""
        if self.verdict is not None:
            return self
        found = self._client.sweep(self.id).verdict
        return self.model_copy(update={"verdict": Verdict.model_validate(dataclasses.asdict(found))})

    def frame(self, table: str = "variants", library: str | None = None, **filters: Any) -> Any:
        """Return one of its tables as a data frame. Arguments as of `Client.frame`."""
        return self._client.frame(table, library, experiment_id=self.id, **filters)

    def __repr__(self) -> str:
        return f"Experiment {self.id}{self._said}"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """What a notebook shows: the same with a link to its page, and the verdict's ratio as a plot."""
        return f'<a href="{escape(self.url)}">Experiment {self.id}</a>{escape(self._said)}{self._plot}'

    @property
    def _plot(self) -> str:
        """The ratio with its interval over the noise floor, as a report draws it; empty without one."""
        found = self.verdict
        if found is None or found.ratio is None:
            return ""
        from taskloom.analysis.comparison import NOISE_FLOOR
        from taskloom.analysis.report.ratios import Ratio, figure_of
        from taskloom.analysis.report.tokens import COLOURS, light
        from taskloom.analysis.wording import sides_of

        row = Ratio("step time", found.ratio, found.low, found.high, found.verdict)
        sides = sides_of([(None, found.a, found.b)])
        svg = figure_of([row], sides, NOISE_FLOOR, 90, 640)
        for name in COLOURS:  # a notebook has no custom properties
            svg = svg.replace(f"var(--{name})", light(name))
        return f"<div>{svg}</div>"

    @property
    def _said(self) -> str:
        name = f" ({self.name})" if self.name else ""
        states = enumerated(f"{count} {state}" for state, count in sorted(self.by_state.items()) if count)
        verdict = "" if self.verdict is None else f". {self.verdict.sentence}"
        return f"{name}: {self.state}, {counted(self.runs, 'run')} ({states}){verdict}"
