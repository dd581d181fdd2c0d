"""The reader in PyTorch, from the same initial weights. Its parameters have the names of our files of weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bench.torch_gpt2 import new_optimizer
from gpt2core.data.cloze import Records, open_records
from gpt2core.networks.reader import checkpoint
from gpt2core.networks.reader.network import NETWORK
from gpt2core.networks.reader.tensors import model_of
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.optimizers import learning_rates


class Reader(nn.Module):
    """The sum of losses of the answers: Cui et al. 2017 on packed sequences."""

    def __init__(self, embedding: int, hidden: int, vocab: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, embedding)
        self.document = nn.GRU(embedding, hidden, batch_first=True, bidirectional=True)
        self.query = nn.GRU(embedding, hidden, batch_first=True, bidirectional=True)

    def _states(self, gru: nn.GRU, tokens: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(gru(packed)[0], batch_first=True, total_length=tokens.shape[1])[0]

    def probabilities(self, documents: Tensor, queries: Tensor, lengths: Tensor) -> Tensor:
        """(B, T): of the word at each position of the document, 0 after its end."""
        in_document, in_query = (torch.arange(each.shape[1])[None, :] < lengths[:, i : i + 1]
                       for i, each in enumerate((documents, queries)))  # fmt: skip
        scores = self._states(self.document, documents, lengths[:, 0]) @ self._states(
            self.query, queries, lengths[:, 1]
        ).transpose(1, 2)
        alpha = scores.masked_fill(~in_document[:, :, None], -torch.inf).softmax(1) * in_query[:, None, :]
        beta = scores.masked_fill(~in_query[:, None, :], -torch.inf).softmax(2) * in_document[:, :, None]
        attended = (alpha @ (beta.sum(1) / lengths[:, :1])[:, :, None])[:, :, 0]
        same = (documents[:, :, None] == documents[:, None, :]).to(attended.dtype)
        return (same @ attended[:, :, None])[:, :, 0] * in_document

    def forward(self, documents: Tensor, queries: Tensor, answers: Tensor, lengths: Tensor) -> Tensor:
        found = self.probabilities(documents, queries, lengths)
        first = (documents == answers[:, None]).to(torch.int8).argmax(1)
        return -found.gather(1, first[:, None]).log().sum()


def from_ours(config: TrainConfig, dtype: torch.dtype = torch.float64) -> Reader:
    """The module with the initial weights of a run."""
    weights = {spec.name: np.empty(spec.shape, np.float32) for spec in NETWORK.tensors(config)["weights"]}
    NETWORK.initialise(config, weights)
    sizes = model_of(config)
    model = Reader(sizes.embedding, sizes.hidden, sizes.vocab).to(dtype)
    model.load_state_dict({name: torch.from_numpy(part.copy()) for name, part in checkpoint.FILES.parts(weights)})
    return model


def batches(config: TrainConfig, records: Records) -> Iterator[tuple[Tensor, ...]]:
    """Every micro-batch of a run: documents, queries, answers, lengths."""
    count = len(records.lengths) // config.batch
    for number in range(config.steps * config.grad_accum):
        part = slice(number % count * config.batch, (number % count + 1) * config.batch)
        yield tuple(torch.from_numpy(each[part].astype(np.int64)) for each in records)


def train(model: Reader, config: TrainConfig) -> list[float]:
    """Train in place; each step's loss, before its update."""
    optimizer, rates, losses = new_optimizer(model, config), learning_rates(config), []
    every = batches(config, open_records(config))
    for step in range(config.steps):
        for group in optimizer.param_groups if rates else ():
            group["lr"] = rates[step]
        total = 0.0
        for _ in range(config.grad_accum):
            loss = model(*next(every)) / (config.batch * config.grad_accum)
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
