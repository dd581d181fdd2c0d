"""OpenMP runtimes as schedulers: our tasks, on the threads and in the order of an OpenMP runtime.

libgomp (GCC's), libiomp5 (Intel's) and libomp (LLVM's) all run compiled code through the entry points that GCC's
compilers call, so no compiler is needed here. The setting `runtime` says which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpt2core.schedulers.scheduler import Scheduler


class OpenMP(Scheduler):
    """A scheduler whose threads an OpenMP runtime starts."""

    def load(self, options: Mapping[str, Any], cores: Sequence[int]) -> None:
        from gpt2core.schedulers.openmp import runtime

        runtime.load(options["runtime"], cores)

    def environment(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        from gpt2core.schedulers.openmp import runtime

        return runtime.describe()
