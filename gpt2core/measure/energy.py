"""Energy of packages and memory through RAPL, as Linux shows it under /sys/class/powercap.

It is what the whole package used, other processes and idle cores included. Source: Linux, Documentation/power/powercap;
drivers/powercap/intel_rapl_common.c (for Intel and AMD).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpt2core.node import host

POWERCAP = Path("/sys/class/powercap")
PACKAGE, MEMORY = "package", "memory"
NONE = "this machine shows no RAPL: a virtual machine, or a kernel without intel_rapl_msr"
NO_MEMORY = "this processor has no memory domain: its memory is not measured, or counts as part of the package"


@dataclass
class Zone:
    """One counter, which returns to 0 after range_uj."""

    name: str
    part: str  # PACKAGE or MEMORY
    file: Path
    range_uj: int
    last_uj: int
    used_uj: int = 0

    def read(self) -> None:
        """Add what was used since the last reading, between which the counter wraps at most once."""
        now_uj = host.read_int(self.file)
        if now_uj is None:
            raise OSError(f"{self.file} cannot be read any more")
        grown = now_uj - self.last_uj
        self.used_uj += grown if grown >= 0 else grown + self.range_uj
        self.last_uj = now_uj


@dataclass
class Meter:
    """The machine's packages and their memory. `unavailable` has the reason for a missing part."""

    root: Path = field(default_factory=lambda: POWERCAP)
    zones: list[Zone] = field(default_factory=list)
    unavailable: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        denied: dict[str, Path] = {}
        for folder in sorted(self.root.glob("intel-rapl:*")):  # intel-rapl-mmio shows the same packages again
            name = host.read_text(folder / "name") or ""
            part = PACKAGE if name.startswith("package") else MEMORY if name == "dram" else None
            if part is None:  # cores and graphics are parts of a package; psys has the packages within it
                continue
            file, range_uj = folder / "energy_uj", host.read_int(folder / "max_energy_range_uj")
            now_uj = host.read_int(file)
            if now_uj is None or range_uj is None:
                denied.setdefault(part, file)
                continue
            within = host.read_text(folder.parent / folder.name.rpartition(":")[0] / "name")
            named = f"{within}/{name}" if part == MEMORY and within else name
            self.zones.append(Zone(named, part, file, range_uj, now_uj))
        for part, file in denied.items():  # a sum over some of the packages would mislead
            self.zones = [zone for zone in self.zones if zone.part != part]
            self.unavailable[part] = f"{file} cannot be read; root may allow it: chmod a+r {file}"
        known = {zone.part for zone in self.zones}
        for part, reason in ((PACKAGE, NONE), (MEMORY, NO_MEMORY if PACKAGE in known else NONE)):
            if part not in known:
                self.unavailable.setdefault(part, reason)

    def read_j(self, part: str) -> float | None:
        """Joules that a part used since the meter began, over all its zones; None if it is unavailable."""
        of_it: Sequence[Zone] = [zone for zone in self.zones if zone.part == part]
        if not of_it:
            return None
        try:
            for zone in of_it:
                zone.read()
        except OSError as error:  # an offline package, or a permission that was taken back
            self.zones = [zone for zone in self.zones if zone.part != part]
            self.unavailable[part] = str(error)
            return None
        return sum(zone.used_uj for zone in of_it) / 1e6
