"""Generate tokens with PyTorch in its own process: the settings (TrainConfig and a Peer of bench.torch_peers, as JSON)
on standard input, tokens and times as one JSON line on standard output.

Written plainly, as gpt-fast is: GPT-2's keys and values are kept in tensors of a fixed length, so that one compiled
graph serves every position, and a mask hides later positions. The prompt is read in one pass, each later token in one
of its own. bf16: all weights and activations are bfloat16. The first generation of a process is not timed.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from gpt2core.spec.config import TrainConfig

Read = Callable[["Tensor", "Tensor"], "Tensor"]  # tokens and positions (T,) to the logits of the last one


def main() -> None:
    spec = json.loads(sys.stdin.read())
    os.sched_setaffinity(0, spec["config"]["cores"])  # before PyTorch counts cores and starts threads
    json.dump(measure(spec), sys.stdout)


def measure(spec: dict[str, Any]) -> dict[str, Any]:
    """Tokens, seconds to the first one, and of each later one, of the second generation; the peak memory."""
    import torch

    from gpt2core.spec.config import TrainConfig

    config = TrainConfig.from_dict(spec["config"])
    torch.set_num_threads(config.threads)
    torch.backends.mkldnn.set_flags(spec["onednn"])
    torch._dynamo.config.allow_rnn = spec["compiled_rnn"]
    with torch.inference_mode():
        read, forget = reader(config)
        step: Any = torch.compile(read, mode=spec["mode"], dynamic=False) if spec["compiled"] else read
        for _ in range(2):
            forget()
            found = generate(config, step)
    return {
        **found,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "environment": {"torch": torch.__version__, "threads": torch.get_num_threads()},
    }


def generate(config: TrainConfig, read: Read) -> dict[str, Any]:
    """One generation, greedily."""
    import torch

    prompt = torch.tensor(config.prompt)
    tokens, times = [], [time.perf_counter_ns()]
    given, positions = prompt, torch.arange(len(prompt))
    for number in range(config.generate):
        tokens.append(int(read(given, positions).argmax()))
        times.append(time.perf_counter_ns())
        given, positions = torch.tensor([tokens[-1]]), torch.tensor([len(prompt) + number])
    spent_s = [(end - begin) / 1e9 for begin, end in itertools.pairwise(times)]
    return {"tokens": tokens, "first_s": spent_s[0], "token_s": spent_s[1:]}


def reader(config: TrainConfig) -> tuple[Read, Callable[[], None]]:
    """What reads tokens of the checkpoint's model, and what forgets those that it has read."""
    import torch

    from bench import torch_gpt2, torch_lstm

    dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
    if config.model.network == "lstm":
        lstm = torch_lstm.read_model(config).to(dtype)
        lstm.carries = lstm.last = True

        def forget() -> None:
            lstm.state = None

        return lambda tokens, _: lstm.logits(tokens[None])[0, -1], forget
    gpt2 = torch_gpt2.read_llmc_checkpoint(config.checkpoint or "").to(dtype)
    reads = of_gpt2(gpt2, len(config.prompt or ()) + config.generate - 1, dtype)  # the last token is not read
    return reads, lambda: None  # a mask hides what the last generation has kept


def of_gpt2(model: Any, length: int, dtype: Any) -> Read:
    """What reads tokens of a GPT-2 that keeps keys and values of `length` positions."""
    import torch
    from torch.nn import functional as F

    C, heads, layers = model.sizes.channels, model.sizes.heads, model.sizes.layers
    keys, values = torch.zeros(2, layers, heads, length, C // heads, dtype=dtype)
    seen = torch.arange(length)

    def read(tokens: Tensor, positions: Tensor) -> Tensor:
        T = len(tokens)
        x = model.wte(tokens) + model.wpe(positions)
        mask = seen[None] <= positions[:, None]
        for layer, block in enumerate(model.blocks):
            q, k, v = block.qkv(block.ln1(x)).view(T, 3, heads, C // heads).permute(1, 2, 0, 3)
            keys[layer].index_copy_(1, positions, k)
            values[layer].index_copy_(1, positions, v)
            found = F.scaled_dot_product_attention(q[None], keys[layer][None], values[layer][None], attn_mask=mask)
            x = x + block.attproj(found[0].transpose(0, 1).reshape(T, C))
            x = x + block.fcproj(F.gelu(block.fc(block.ln2(x)), approximate="tanh"))
        logits: Tensor = F.linear(model.lnf(x[-1:]), model.wte.weight)
        return logits[0]

    return read


if __name__ == "__main__":
    main()
