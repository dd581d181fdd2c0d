"""The GRU of `gru` in PyTorch, from the same initial weights."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.torch_gpt2 import train
from gpt2core.data.sources import open_tokens
from gpt2core.spec.config import TrainConfig
from tests.support.networks.gru import NETWORK


class Gru(nn.Module):
    """The mean next-token loss of (B, T) tokens."""

    def __init__(self, hidden: int, vocab: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)
        self.head = nn.Linear(hidden, vocab)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        logits = self.head(self.gru(self.embedding(inputs))[0])
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def losses(config: TrainConfig, dtype: torch.dtype = torch.float64) -> list[float]:
    """Losses of a run."""
    weights = {spec.name: np.empty(spec.shape, np.float32) for spec in NETWORK.tensors(config)["weights"]}
    NETWORK.initialise(config, weights)
    model = Gru(config.model.hidden, config.model.vocab).to(dtype)  # type: ignore[attr-defined]
    ours = {"embedding.weight": "embedding", "head.weight": "head", "head.bias": "head_bias"}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mine = ours.get(name, name.removeprefix("gru.").removesuffix("_l0"))
            parameter.copy_(torch.from_numpy(weights[mine]))
    return train(model, config, open_tokens(config))
