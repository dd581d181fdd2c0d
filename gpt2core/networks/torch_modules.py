"""Weights of a torch module of embeddings, GRUs and linear layers: their initial values, and their files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from gpt2core.networks import halves
from gpt2core.networks.normal import Normals
from gpt2core.networks.shards import Stored, check_tensors, few, read_tensors
from gpt2core.node.files import replacing
from gpt2core.spec.errors import ConfigError, ShapeMismatch, UnreadableFile
from gpt2core.spec.networks import Model
from gpt2core.step.tensors import TensorSpec

Weights = Mapping[str, NDArray[np.float32]]

SUFFIX = ".safetensors"
WEIGHTS_STREAM = 0  # the seed's second word, so that weights and data of one seed are drawn independently


def initial_weights(
    specs: Iterable[TensorSpec], seed: int, weights: Weights, inputs: Callable[[str], int]
) -> None:
    """Fill the weights of a new model: the same numbers for the same seed on every machine.

    Embeddings are normal with standard deviation 1, all else is uniform within 1 / sqrt(`inputs` of the weight), as of
    torch.nn.Embedding, torch.nn.GRU and torch.nn.Linear.
    """
    uniforms = np.random.Generator(np.random.PCG64([seed, WEIGHTS_STREAM, 1]))
    normals = Normals([seed, WEIGHTS_STREAM])
    for spec in specs:
        bound = np.float32(1 / math.sqrt(inputs(spec.name)))
        for part in halves.parts(weights[spec.name]):
            if spec.name.endswith("embedding"):
                normals.fill(part, 1.0)
            else:
                uniforms.random(dtype=np.float32, out=part)
                part *= 2 * bound
                part -= bound


def gru(name: str, ways: Sequence[str] = ("", "_reverse")) -> dict[str, str]:
    """The names of a GRU's weights in a file, by those in memory."""
    return {
        f"{name}_{kind}{way}{bias}": f"{name}.{'bias' if bias else 'weight'}_{kind}_l0{way}"
        for way in ways for kind in ("ih", "hh") for bias in ("", "_bias")
    }  # fmt: skip


@dataclass(frozen=True)
class Files:
    """Files in safetensors of a network. plain: the names of its weights there, by those in memory; both: GRUs whose
    input's weights have the rows of both directions; sized: the model of an embedding (V, E) and a recurrent weight
    (any, H), whose names are given."""

    network: str
    embedding: str
    recurrent: str
    plain: Mapping[str, str]
    both: tuple[str, ...]
    sized: Callable[[int, int, int], Model]
    specs: Callable[[Any], Sequence[TensorSpec]]
    presets: Mapping[str, Model]

    def read_model(self, path: str | Path) -> Model:
        """The model in a file, from the shapes of its tensors. It has a preset's name if it has that preset's sizes.

        Sizes that no shape has, such as the context, are the defaults. Raises UnreadableFile, BadMagic, BadVersion,
        TruncatedFile, CountMismatch, ShapeMismatch.
        """
        stored = read_tensors(path).stored
        vocab, embedding = self._two_sizes(path, stored, self.embedding)
        rows, hidden = self._two_sizes(path, stored, self.recurrent)
        try:
            model = self.sized(vocab, embedding, hidden)
        except ConfigError as error:
            raise ShapeMismatch(path, f"its {error}") from error
        given = f"a model with {self.recurrent} {(rows, hidden)} and {self.embedding} {(vocab, embedding)}"
        check_tensors(path, stored, self.shapes(model), given)
        sizes = model.to_dict()
        return next((each for each in self.presets.values() if {**each.to_dict(), "name": model.name} == sizes), model)

    def read_checkpoint(self, path: str | Path, model: Model, weights: Weights) -> None:
        """Fill the weights from a file; F16 and BF16 are widened exactly. Nothing is written unless all tensors agree.
        """
        self.read_model(path)  # names a file that contradicts itself
        stored = read_tensors(path).stored
        check_tensors(path, stored, self.shapes(model), "the requested model")
        for name, part in self.parts(weights):
            stored[name].copy_to(part)

    @staticmethod
    def about(path: str | Path) -> dict[str, Any]:
        """Format of a file and of its numbers, as the result has them."""
        dtypes = sorted({each.dtype for each in read_tensors(path).stored.values()})
        return {"format": "safetensors", "dtype": ", ".join(dtypes)}

    def write_checkpoint(self, path: str | Path, _model: Model, weights: Weights) -> None:
        """Write a file, completely or not at all. Raises ConfigError for another suffix, UnreadableFile."""
        self.check_suffix(path)
        with replacing(path) as part:
            try:
                save_file(dict(self.parts(weights)), part, {"format": "pt"})
            except SafetensorError as error:
                raise UnreadableFile(path, str(error)) from error

    def check_suffix(self, path: str | Path) -> None:
        """Raise ConfigError for a path that names another format."""
        if Path(path).suffix != SUFFIX:
            raise ConfigError("save", str(path), f"a path that ends in {SUFFIX}, the file format of a {self.network}")

    def parts(self, weights: Weights) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Each tensor of a file: a weight, or one direction's rows of it."""
        for name, array in weights.items():
            of, _, bias = name.partition("_ih")
            if of in self.both and name.startswith(f"{of}_ih"):
                half = len(array) // 2
                yield self.plain[name], array[:half]
                yield self.plain[f"{of}_ih_reverse{bias}"], array[half:]
            else:
                yield self.plain[name], array

    def shapes(self, model: Model) -> dict[str, tuple[int, ...]]:
        """Shape of each tensor in a file."""
        none = {spec.name: np.broadcast_to(np.float32(0), spec.shape) for spec in self.specs(model)}
        return {name: part.shape for name, part in self.parts(none)}

    def _two_sizes(self, path: str | Path, stored: Mapping[str, Stored], name: str) -> tuple[int, int]:
        if name not in stored:
            reason = f"has no tensor {name}: it is not a {self.network}'s, but has {few(stored.keys())}"
            raise ShapeMismatch(path, reason)
        shape = stored[name].shape
        if len(shape) != 2:
            raise ShapeMismatch(path, f"{name} has shape {shape}, not two dimensions")
        return shape[0], shape[1]
