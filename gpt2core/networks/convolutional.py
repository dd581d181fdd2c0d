"""What networks of convolutions share: their weights, tensors and files. Methods import what needs NumPy."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from gpt2core.layers.windows import Convolution, images, temporary
from gpt2core.networks import classes, token_rows
from gpt2core.networks.network import InFiles
from gpt2core.networks.of_images import ImageModel, ImageNetwork
from gpt2core.optimizers import state
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.data import CHANNELS
from gpt2core.step import slicing
from gpt2core.step.tensors import TensorSpec

if TYPE_CHECKING:
    from pathlib import Path

    from gpt2core.networks.network import Weights
    from gpt2core.networks.normal import Normals

WEIGHTS_STREAM = 0  # the seed's second word, so that weights and data of one seed are drawn independently


class ConvolutionalModel(ImageModel):
    """Sizes of a network of convolutions, the average of all pixels, and dense layers with a bias each."""

    @property
    @abstractmethod
    def convolutions(self) -> Sequence[Convolution]:
        """All convolutions, in the order of the forward pass."""

    @property
    @abstractmethod
    def dense(self) -> Mapping[str, tuple[int, int]]:
        """Outputs and inputs of the dense layers by their names, in the order of the forward pass."""

    @property
    def weights(self) -> list[TensorSpec]:
        """The weights by the names of a torch module, in the order in which they lie; those of convolutions as
        matrices."""
        convolved = [spec for each in self.convolutions for spec in each.specs]
        for name, (outputs, inputs) in self.dense.items():
            convolved += [TensorSpec(f"{name}.weight", (outputs, inputs)), TensorSpec(f"{name}.bias", (outputs,))]
        return convolved

    def step_flop(self, samples: int, positions: int) -> int:
        """FLOP of the products: of each weight's forward pass, and of the gradients of its input and of itself."""
        dense = sum(6 * outputs * inputs for outputs, inputs in self.dense.values())
        return samples * positions * (sum(each.step_flop for each in self.convolutions) + dense)

    def forward_flop(self, samples: int, positions: int, rows: int) -> int:
        *hidden, last = [2 * outputs * inputs for outputs, inputs in self.dense.values()]
        return samples * positions * (sum(each.flop for each in self.convolutions) + sum(hidden)) + last * rows


class ConvolutionalNetwork(InFiles, ImageNetwork):
    """A network whose model is a ConvolutionalModel."""

    files = "gpt2core.networks.image_files"
    first: ClassVar[str]  # the first convolution's weight
    last: ClassVar[str]  # the last dense layer's

    @abstractmethod
    def sized(
        self, path: str | Path, names: Collection[str], width: int, classes: int, inputs: int
    ) -> ConvolutionalModel:
        """The model of a file with tensors of these names, from the outputs of the first convolution and the sizes of
        the last dense layer. Raises ConfigError, ShapeMismatch.
        """

    @abstractmethod
    def initialise_dense(self, config: TrainConfig, normals: Normals, weights: Weights) -> None:
        """Fill the weights of the dense layers."""

    def initialise(self, config: TrainConfig, weights: Weights) -> None:
        """Weights of convolutions are normal with variance 2 / fan out, and their biases are 0 (He et al. 2015)."""
        from gpt2core.networks.normal import Normals

        normals = Normals([config.seed, WEIGHTS_STREAM])
        for each in model_of(config).convolutions:
            normals.fill(weights[each.weight], math.sqrt(2 / (each.OC * each.size**2)))
            if each.bias:
                weights[each.bias][:] = 0
        self.initialise_dense(config, normals, weights)

    def check(self, config: TrainConfig) -> None:
        if config.save is not None:
            self._files().check_suffix(config.save, self.model.network)

    def model_in(self, path: str) -> ConvolutionalModel:
        found: ConvolutionalModel = self._files().read_model(path, self)
        return found

    def read(self, config: TrainConfig, weights: Weights) -> None:
        self.model_in(str(config.checkpoint))  # names a file that contradicts itself
        super().read(config, weights)


def model_of(config: TrainConfig) -> ConvolutionalModel:
    assert isinstance(config.model, ConvolutionalModel)
    return config.model


def tensors(
    config: TrainConfig, *, kept: Sequence[TensorSpec], reverse: Sequence[TensorSpec] = (),
    weights: Sequence[TensorSpec] | None = None,
) -> dict[str, list[TensorSpec]]:  # fmt: skip
    """Every tensor by its arena's kind. `kept`: the layers' outputs, the last of which the last dense layer reads;
    `reverse`: what only the reverse pass has, whose layers share memory; `weights`: by default all of the model.
    """
    model, own, trains = model_of(config), config.batch_part, config.has_gradients
    weights = model.weights if weights is None else weights
    outputs, inputs = list(model.dense.values())[-1]
    head, accuracy = token_rows.head_specs(config, inputs, outputs), classes.specs(config)
    return {
        **state.arenas_with(state.names(config), weights, keeps_gradients=config.fused != "all"),
        "activations": [
            images("images", own.batch, model.side, CHANNELS),
            TensorSpec("targets", (config.batch,), "int32"),
            *kept,
            *head["activations"],
            *accuracy["activations"],
        ],
        "temporary": [
            *head["temporary"],
            *accuracy["temporary"],
            *(reverse if trains else []),
            *temporary(model.convolutions, slicing.count(own) if trains else 0),
            *state.for_update(config, [spec.shape for spec in weights if len(spec.shape) == 2]),
        ],
    }
