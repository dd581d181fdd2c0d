"""GPT-2 in plain PyTorch: the peer of benchmarks and the reference of parity tests.

It follows the paper and uses torch's own modules. It shares no code with the trainer, only the sizes of a model and a
schedule's learning rates, which a parity test compares with torch's own.
Weights are read and written with llm.c's names and layout: matrices (out, in), each kind stacked over the layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.models import ModelConfig
from gpt2core.spec.optimizers import learning_rates

Weights = dict[str, np.ndarray]

IN_BLOCK = ("ln1", "qkv", "attproj", "ln2", "fc", "fcproj")  # llm.c's names without their final w or b
NOT_STACKED = ("wte", "wpe", "lnfw", "lnfb")


class Block(nn.Module):
    """One transformer block with its LayerNorms before attention and MLP."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(channels, eps=1e-5)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.attproj = nn.Linear(channels, channels)
        self.ln2 = nn.LayerNorm(channels, eps=1e-5)
        self.fc = nn.Linear(channels, 4 * channels)
        self.fcproj = nn.Linear(4 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attproj(attention(self.qkv(self.ln1(x)), self.heads))
        grown: Tensor = x + self.fcproj(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))
        return grown


class GPT2(nn.Module):
    """The mean next-token loss of (B, T) tokens; the head is the token embedding.

    padded: its products are over the padded vocabulary. A bias of -inf keeps the padding out of the softmax, so the
    loss is the same and the padding's gradients are zero. last: the loss is that of the last positions.
    """

    last = False

    def __init__(self, sizes: ModelConfig, padded: bool = False) -> None:
        super().__init__()
        self.sizes = sizes
        rows = sizes.padded_vocab if padded else sizes.vocab
        self.wte = nn.Embedding(rows, sizes.channels)
        self.logits_bias: Tensor | None
        self.register_buffer("logits_bias", torch.zeros(rows) if padded else None)
        if self.logits_bias is not None:
            self.logits_bias[sizes.vocab :] = -torch.inf
        self.wpe = nn.Embedding(sizes.context, sizes.channels)
        self.blocks = nn.ModuleList(Block(sizes.channels, sizes.heads) for _ in range(sizes.layers))
        self.lnf = nn.LayerNorm(sizes.channels, eps=1e-5)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        if self.last:
            x, targets = x[:, -1:], targets[:, -1:]
        logits = F.linear(self.lnf(x), self.wte.weight, self.logits_bias)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def attention(qkv: Tensor, heads: int) -> Tensor:
    """Causal attention of packed (B, T, 3C) queries, keys and values, head after head within each."""
    B, T, width = qkv.shape
    q, k, v = qkv.view(B, T, 3, heads, width // 3 // heads).permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, width // 3)


def parameters_by_name(model: GPT2) -> dict[str, list[Tensor]]:
    """llm.c's names, in its order, with the parameters that each stacks, in the order of the layers."""
    found: dict[str, list[Tensor]] = {"wte": [model.wte.weight], "wpe": [model.wpe.weight]}
    for name in IN_BLOCK:
        layers = [getattr(block, name) for block in model.blocks]
        found[name + "w"] = [layer.weight for layer in layers]
        found[name + "b"] = [layer.bias for layer in layers]
    return {**found, "lnfw": [model.lnf.weight], "lnfb": [model.lnf.bias]}


def weights_of(model: GPT2) -> Weights:
    """Copies of the weights in llm.c's layout; the padded rows of wte are zero."""
    out: Weights = {}
    for name, parameters in parameters_by_name(model).items():
        arrays = [parameter.detach().numpy().copy() for parameter in parameters]
        out[name] = arrays[0] if name in NOT_STACKED else np.stack(arrays)
    padding = model.sizes.padded_vocab - len(out["wte"])
    out["wte"] = np.pad(out["wte"], ((0, padding), (0, 0)))
    return out


def load_weights(model: GPT2, weights: Mapping[str, np.ndarray]) -> None:
    """Set the weights from llm.c's layout, in the model's own number format."""
    with torch.no_grad():
        for name, parameters in parameters_by_name(model).items():
            array = torch.from_numpy(np.array(weights[name]))
            if name == "wte":
                array = array[: model.wte.num_embeddings]
            layers = [array] if name in NOT_STACKED else list(array)
            for parameter, layer in zip(parameters, layers, strict=True):
                parameter.copy_(layer)


def random_model(sizes: ModelConfig, seed: int, dtype: torch.dtype = torch.float32) -> GPT2:
    """A GPT-2 with GPT-2's deviations, but with random biases and LayerNorms, so that each affects the result."""
    generator = torch.Generator().manual_seed(seed)
    model = GPT2(sizes)
    with torch.no_grad():
        for name, parameters in parameters_by_name(model).items():
            for parameter in parameters:
                drawn = torch.randn(parameter.shape, generator=generator)
                if name.startswith("ln") and name.endswith("w"):
                    parameter.copy_(1 + 0.1 * drawn)
                else:
                    parameter.copy_((0.1 if name.endswith("b") else 0.02) * drawn)
    return model.to(dtype)


def new_optimizer(model: nn.Module, config: TrainConfig, fused: bool = False) -> torch.optim.Optimizer:
    """The run's optimizer, with its weight decay on every weight."""
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            model.parameters(), lr=config.lr, momentum=config.momentum, nesterov=config.nesterov,
            weight_decay=config.weight_decay, fused=fused,
        )  # fmt: skip
    if config.optimizer != "adamw":
        raise ConfigError("optimizer", config.optimizer, "adamw or sgd beside PyTorch")
    return torch.optim.AdamW(
        model.parameters(),
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        weight_decay=config.weight_decay,
        fused=fused,
    )


def batch_of(stream: np.ndarray, number: int, batch: int, seq: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets (B, T) of a batch, counted from 0. After the last batch the first one follows."""
    start = number % ((len(stream) - 1) // (batch * seq)) * batch * seq
    tokens = torch.from_numpy(stream[start : start + batch * seq + 1].astype(np.int64))
    return tokens[:-1].view(batch, seq), tokens[1:].view(batch, seq)


def batch_of_parts(stream: np.ndarray, number: int, batch: int, seq: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets (B, T) of a batch, each sequence from its own contiguous part of the stream."""
    part = (len(stream) - 1) // batch
    start = number % (part // seq) * seq
    rows = [stream[b * part + start : b * part + start + seq + 1] for b in range(batch)]
    tokens = torch.from_numpy(np.stack(rows).astype(np.int64))
    return tokens[:, :-1], tokens[:, 1:]


def train(model: nn.Module, config: TrainConfig, stream: np.ndarray) -> list[float]:
    """Train in place for config.steps; each step's loss, before its update."""
    return train_with_norms(model, config, stream)[0]


def train_with_norms(model: nn.Module, config: TrainConfig, stream: np.ndarray) -> tuple[list[float], list[float]]:
    """Train in place for config.steps; each step's loss and, if it is limited, the gradients' norm before that."""
    optimizer, rates = new_optimizer(model, config), learning_rates(config)
    batch_at = batch_of_parts if config.carry_state else batch_of
    losses, norms = [], []
    for step in range(config.steps):
        for group in optimizer.param_groups if rates else ():
            group["lr"] = rates[step]
        total = 0.0
        for micro in range(config.grad_accum):
            with torch.autocast("cpu", torch.bfloat16, enabled=config.precision == "bf16"):
                loss = model(*batch_at(stream, step * config.grad_accum + micro, config.batch, config.seq))
            (loss / config.grad_accum).backward()
            total += float(loss.detach()) / config.grad_accum
        if config.grad_clip:
            norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total)
    return losses, norms


def write_llmc_checkpoint(path: Path, model: GPT2) -> None:
    """The model's weights as a llm.c checkpoint of version 3 (fp32)."""
    sizes = model.sizes
    header = np.zeros(256, dtype="<i4")
    header[:8] = (
        20240326, 3, sizes.context, sizes.vocab, sizes.layers, sizes.heads, sizes.channels, sizes.padded_vocab
    )  # fmt: skip
    with path.open("wb") as stream:
        stream.write(header.tobytes())
        for array in weights_of(model).values():
            stream.write(array.astype("<f4").tobytes())


def read_llmc_checkpoint(path: str | Path, padded: bool = False) -> GPT2:
    """A model from a llm.c checkpoint of version 3, with or without the padding of its vocabulary."""
    header = np.fromfile(path, dtype="<i4", count=256)
    context, vocab, layers, heads, channels, _ = (int(value) for value in header[2:8])
    model = GPT2(ModelConfig(layers, heads, channels, vocab, context), padded)
    values, at = np.memmap(path, dtype="<f4", mode="r", offset=1024), 0
    weights: Weights = {}
    for name, array in weights_of(model).items():
        weights[name] = values[at : at + array.size].reshape(array.shape)
        at += array.size
    load_weights(model, weights)
    return model
