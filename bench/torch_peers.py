"""PyTorch's ways of running the step that bench.step compares with: as installed, and tuned as a careful user would.

Tuned: malloc keeps freed memory (by default it returns large blocks to the kernel, and each new one costs a page fault
a page); the logits' products use a vocabulary padded as ours, with the same loss; OpenMP's threads are bound. Further
settings are variants of their own, so that the fastest is known.
"""

from __future__ import annotations

import ctypes.util
import dataclasses
from collections.abc import Mapping, Sequence

from gpt2core.node import openmp

KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(64 << 20)}
# According to PyTorch's tuning guide.
JEMALLOC = {
    "MALLOC_CONF": "oversize_threshold:1,background_thread:true,metadata_thp:auto,"
    "dirty_decay_ms:9000000000,muzzy_decay_ms:9000000000"
}
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}  # malloc requests huge pages, as our arenas do


@dataclasses.dataclass(frozen=True)
class Peer:
    """One way to run PyTorch. mode: of torch.compile; settings: of the environment; preload: a library. onednn: whether
    an LSTM's cells are oneDNN's; compiled_rnn: whether torch.compile may compile them. channels_last: layout of images.
    """

    compiled: bool
    tuned: bool = False
    mode: str | None = None
    compiled_optimizer: bool = False
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    preload: str | None = None
    onednn: bool = True
    compiled_rnn: bool = False
    channels_last: bool = False


PEERS = {
    "torch-eager": Peer(compiled=False),
    "torch-compile": Peer(compiled=True),
    "torch-tuned": Peer(compiled=False, tuned=True),
    "torch-tuned-compile": Peer(compiled=True, tuned=True),
    "torch-tuned-hugepages": Peer(compiled=True, tuned=True, settings=HUGE_PAGES),
    "torch-tuned-jemalloc": Peer(compiled=True, tuned=True, settings=JEMALLOC, preload="jemalloc"),
    "torch-tuned-iomp5": Peer(compiled=True, tuned=True, settings={"KMP_BLOCKTIME": "1"}, preload="iomp5"),
    "torch-tuned-max-autotune": Peer(compiled=True, tuned=True, mode="max-autotune"),
    "torch-tuned-optimizer": Peer(compiled=True, tuned=True, compiled_optimizer=True),
    "torch-tuned-no-onednn": Peer(compiled=False, tuned=True, onednn=False),
    "torch-tuned-compile-rnn": Peer(compiled=True, tuned=True, compiled_rnn=True),
    "torch-tuned-channels-last": Peer(compiled=False, tuned=True, channels_last=True),
    "torch-tuned-compile-channels-last": Peer(compiled=True, tuned=True, channels_last=True),
}


def environment(peer: Peer, cores: Sequence[int]) -> dict[str, str]:
    """Additional environment of a peer's process. Raises SystemExit."""
    found = {"OMP_NUM_THREADS": str(len(cores))}
    if peer.compiled:
        found["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # bench.quiet would count compiling workers' time as others'
    if peer.tuned:
        places = ",".join(f"{{{core}}}" for core in cores)
        found |= {**KEEP_MEMORY, "OMP_PROC_BIND": "close", "OMP_PLACES": places}
    if peer.preload is not None:
        found["LD_PRELOAD"] = library(peer.preload)
    return {**found, **peer.settings}


def library(name: str) -> str:
    """The path of a library for LD_PRELOAD. Raises SystemExit if this machine has none of that name."""
    runtime = openmp.find().get(f"lib{name}")
    found = ctypes.util.find_library(name) if runtime is None else str(runtime)
    if found is None:
        raise SystemExit(f"no library {name} on this machine")
    return found
