"""seq2seq in PyTorch, from the same initial weights. Its parameters have the names of our files of weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bench.torch_gpt2 import new_optimizer
from gpt2core.data.pairs import Pairs, open_pairs
from gpt2core.networks.seq2seq import checkpoint
from gpt2core.networks.seq2seq.network import NETWORK
from gpt2core.networks.seq2seq.tensors import model_of
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.data import BEGIN
from gpt2core.spec.optimizers import learning_rates

NONE = -100  # target of padding


class Seq2seq(nn.Module):
    """The sum of losses of the targets' tokens, given those before: Luong et al. 2015 on packed sequences."""

    def __init__(self, embedding: int, hidden: int, vocab: int) -> None:
        super().__init__()
        self.source_embedding = nn.Embedding(vocab, embedding)
        self.encoder = nn.GRU(embedding, hidden // 2, batch_first=True, bidirectional=True)
        self.target_embedding = nn.Embedding(vocab, embedding)
        self.decoder = nn.GRU(embedding, hidden, batch_first=True)
        self.combine = nn.Linear(2 * hidden, hidden, bias=False)
        self.head = nn.Linear(hidden, vocab)

    def logits(self, sources: Tensor, inputs: Tensor, lengths: Tensor) -> Tensor:
        T = sources.shape[1]
        packed = pack_padded_sequence(self.source_embedding(sources), lengths, batch_first=True, enforce_sorted=False)
        encoded, last = self.encoder(packed)
        encoded = pad_packed_sequence(encoded, batch_first=True, total_length=T)[0]
        first = torch.cat([last[0], last[1]], dim=1)[None]
        decoded = self.decoder(self.target_embedding(inputs), first)[0]
        scores = decoded @ encoded.transpose(1, 2)
        padding = torch.arange(T)[None, :] >= lengths[:, None]
        shares = scores.masked_fill(padding[:, None, :], -torch.inf).softmax(-1)
        return self.head(torch.tanh(self.combine(torch.cat([shares @ encoded, decoded], dim=2))))

    def forward(self, sources: Tensor, inputs: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        logits = self.logits(sources, inputs, lengths)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=NONE, reduction="sum")


def from_ours(config: TrainConfig, dtype: torch.dtype = torch.float64) -> Seq2seq:
    """The module with the initial weights of a run."""
    weights = {spec.name: np.empty(spec.shape, np.float32) for spec in NETWORK.tensors(config)["weights"]}
    NETWORK.initialise(config, weights)
    sizes = model_of(config)
    model = Seq2seq(sizes.embedding, sizes.hidden, sizes.vocab).to(dtype)
    model.load_state_dict({name: torch.from_numpy(part.copy()) for name, part in checkpoint.FILES.parts(weights)})
    return model


def batches(config: TrainConfig, pairs: Pairs) -> Iterator[tuple[Tensor, ...]]:
    """Every micro-batch of a run: sources, inputs, targets, lengths of the sources."""
    count = len(pairs.lengths) // config.batch
    for number in range(config.steps * config.grad_accum):
        part = slice(number % count * config.batch, (number % count + 1) * config.batch)
        sources, targets = (torch.from_numpy(each[part].astype(np.int64)) for each in pairs[:2])
        lengths = torch.from_numpy(pairs.lengths[part].astype(np.int64))
        inputs = torch.cat([torch.full_like(targets[:, :1], BEGIN), targets[:, :-1]], dim=1)
        padding = torch.arange(config.seq)[None, :] >= lengths[:, 1:]
        yield sources, inputs, targets.masked_fill(padding, NONE), lengths[:, 0]


def train(model: Seq2seq, config: TrainConfig) -> list[float]:
    """Train in place; each step's loss, before its update."""
    optimizer, rates, losses = new_optimizer(model, config), learning_rates(config), []
    every = batches(config, open_pairs(config))
    for step in range(config.steps):
        for group in optimizer.param_groups if rates else ():
            group["lr"] = rates[step]
        total, parts = 0.0, [next(every) for _ in range(config.grad_accum)]
        count = sum(int((targets != NONE).sum()) for _, _, targets, _ in parts)
        for part in parts:
            loss = model(*part) / count
            loss.backward()
            total += float(loss.detach())
        if config.grad_clip:
            nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total)
    return losses


def losses(config: TrainConfig) -> list[float]:
    """Losses of a run."""
    return train(from_ours(config), config)
