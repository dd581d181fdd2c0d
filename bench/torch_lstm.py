"""An LSTM in plain PyTorch: the peer of benchmarks and the reference of parity tests.

It shares no code with the trainer, only a model's sizes and how its settings are read.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from safetensors.torch import load_model
from torch import Tensor, nn
from torch.nn import functional as F

from gpt2core.networks.lstm.tensors import Lstm, model_of
from gpt2core.spec.config import TrainConfig


class LSTM(nn.Module):
    """The mean next-token loss of (B, T) tokens, from a state of 0, or with `carries` from the state after the last
    call, without its gradient. Its names are those of our files. last: the loss is that of the last positions.
    """

    last = False

    def __init__(self, sizes: Lstm, carries: bool = False) -> None:
        super().__init__()
        self.carries = carries
        self.state: tuple[Tensor, ...] | None = None
        self.embedding = nn.Embedding(sizes.vocab, sizes.embedding)
        self.lstm = nn.LSTM(sizes.embedding, sizes.hidden, sizes.layers, batch_first=True)
        self.head = nn.Linear(sizes.hidden, sizes.vocab)
        if sizes.tied:
            self.head.weight = self.embedding.weight

    def logits(self, inputs: Tensor) -> Tensor:
        out, state = self.lstm(self.embedding(inputs), self.state)
        if self.carries:
            self.state = tuple(each.detach() for each in state)
        found: Tensor = self.head(out[:, -1:] if self.last else out)
        return found

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        wanted = targets[:, -1:] if self.last else targets
        return F.cross_entropy(self.logits(inputs).flatten(0, 1), wanted.flatten())


def ours(name: str) -> str:
    """Our name of a parameter."""
    module, _, inner = name.partition(".")
    return {"embedding": "embedding", "lstm": inner, "head": "head" if inner == "weight" else "head_bias"}[module]


def weights_of(model: LSTM) -> dict[str, np.ndarray]:
    """Copies of the weights by our names."""
    return {ours(name): parameter.detach().numpy().copy() for name, parameter in model.named_parameters()}


def load_weights(model: LSTM, weights: Mapping[str, np.ndarray]) -> None:
    """Set the weights from arrays by our names, in the model's own number format."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(np.array(weights[ours(name)])))


def read_model(config: TrainConfig) -> LSTM:
    """The model of a run's checkpoint."""
    model = LSTM(model_of(config), config.carry_state)
    load_model(model, str(config.checkpoint))
    return model
