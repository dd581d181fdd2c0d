"""Settings that a tuning has confirmed, for `--tuned`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gpt2core.spec.errors import ConfigError
from gpt2core.spec.wording import counted

if TYPE_CHECKING:
    from taskloom.client import Client
    from taskloom.contract.tuned import TunedSetting


def find(client: Client, base: Mapping[str, Any], machine: Mapping[str, Any] | None = None) -> TunedSetting:
    """The newest kept setting of a base's network and shape; machine: only with this fingerprint, else only of machines
    that have not changed since. Raises ConfigError.
    """
    known = list(client.tuned(dict(base)))
    fitting = [each for each in known if (not each.changed if machine is None else each.machine == machine)]
    if fitting:
        return fitting[0]
    accepted = "a network and shape with a setting that a tuning has confirmed to be faster; see taskloom tune"
    if known:
        other = known[0]
        ran = f"a machine with a tuning of this network and shape; experiment {other.experiment_id} ran on"
        if machine is None:
            accepted = f"{ran} {other.node}, which has changed since ({', '.join(other.changed)}): tune again"
        else:
            names = [name for name, value in machine.items() if other.machine.get(name) != value]
            accepted = f"{ran} another one ({', '.join(names)} differ): tune again"
    raise ConfigError("tuned", True, accepted)


def said(found: TunedSetting, now: datetime | None = None) -> str:
    """The evidence for a kept setting, with its age."""
    days = ((now or datetime.now(UTC)) - found.confirmed_at).days
    age = "today" if days < 1 else f"{counted(days, 'day')} ago"
    return f"tuned {age} on {found.node} (experiment {found.experiment_id}): {found.sentence}"


def completed(base: Mapping[str, Any], found: TunedSetting, without: set[str]) -> dict[str, Any]:
    """The base with the kept settings. What the base itself sets stays. without: settings that vary."""
    return {**{name: value for name, value in found.settings.items() if name not in without}, **base}
