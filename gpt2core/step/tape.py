"""Tape of a step: what each layer of the forward pass leaves for the reverse pass. Data only.

A layer's function adds its forward op and leaves the function that adds its reverse. The reverse pass adds them in the
opposite order (networks/reverse.py). The gradient of tensor x is tensor `dx`, unless a layer computes it in place.
Source: the tapes of micrograd and tinygrad, here for ops of many tiles.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from gpt2core.spec.errors import GraphError
from gpt2core.step.ops import Tensor

if TYPE_CHECKING:
    from gpt2core.step.parameters import Destination, Parameter

NONE: Mapping[Tensor, list[Parameter]] = MappingProxyType({})


class Reverse(NamedTuple):
    """`add` adds the ops of a layer's reverse pass, which also compute the value of `recomputed` again."""

    add: Callable[[], None]
    recomputed: Tensor | None = None


class Share(NamedTuple):
    """An op's share of a parameter's gradient. `add` adds the op, which needs the value of `needs`."""

    weight: Tensor
    add: Callable[[Destination], None]
    layer: int | None = None
    needs: Tensor | None = None


class Sum(NamedTuple):
    """Shares that one op adds up at the end of the reverse pass, for several layers. `add` adds the op."""

    weights: list[Tensor]
    add: Callable[[Sequence[Parameter], Destination], None]


class Tape:
    """Reverse pass of the ops added so far."""

    def __init__(self) -> None:
        self.reverses: list[Reverse] = []
        self.shares: list[Share] = []  # that no op has been added for yet
        self.sums: dict[str, Sum] = {}
        self.parameters: dict[str, dict[Tensor, list[Parameter]]] = defaultdict(dict)  # by kind of layer, by weight
        self.uses: Counter[Tensor] = Counter()  # number of layers that read a weight
        self._same: dict[Tensor, Tensor] = {}  # tensors whose gradient is that of another one
        self._gradients: dict[Tensor, Tensor] = {}
        self._values: dict[Tensor, Tensor] = {}
        self._bypasses: dict[Tensor, Tensor] = {}  # where residual connections end, by where they begin
        self._needed: set[Tensor] = set()
        self._read: set[Tensor] = set()
        self._of_parts: frozenset[Tensor] | None = None  # weights before rows of all ranks were gathered

    def leave(
        self, add: Callable[[], None], *, out: Tensor, inp: Tensor | None = None, recomputed: Tensor | None = None,
        kind: str = "", weights: Mapping[Tensor, list[Parameter]] = NONE,
    ) -> None:  # fmt: skip
        """Leave the reverse of a layer from `inp` and `weights` to `out`, unless none of them needs a gradient.

        The blocks of the weights of one `kind` of layer are updated together. Raises GraphError if another layer has
        read `inp`, whose gradient would be a sum; a residual connection is none (`bypass`).
        """
        for weight, blocks in weights.items():
            self.uses[weight] += 1
            if self.uses[weight] == 1:
                self.parameters[kind][weight] = blocks
        if weights or self.needs_gradient(inp):
            if inp is not None and inp != out:  # else it is computed in place
                if inp in self._read:
                    raise GraphError(f"two layers read {inp}, but only one can write its gradient")
                self._read.add(inp)
            self._needed.add(out)
            self.reverses.append(Reverse(add, recomputed))

    def gathered(self) -> None:
        """Note that the layers up to here divide the batch among ranks, and that those behind do not."""
        self._of_parts = frozenset(self.uses)

    def folds(self, weight: Tensor) -> bool:
        """Whether ranks that divide the batch fold a weight's gradient: that of each is of its part of the batch."""
        return self._of_parts is None or weight in self._of_parts

    def passes(self, out: Tensor, inp: Tensor) -> None:
        """Note that the gradient of `out` is that of `inp` too, without an op."""
        self._same[inp] = out
        if self.needs_gradient(inp):
            self._needed.add(out)

    def needs_gradient(self, tensor: Tensor | None) -> bool:
        """Whether a tensor depends on weights."""
        return tensor in self._needed

    def gradient(self, tensor: Tensor) -> Tensor:
        """The tensor that has the gradient of another one."""
        while tensor in self._same:
            tensor = self._same[tensor]
        return self._gradients.get(tensor, Tensor(f"d{tensor.name}", tensor.layer))

    def gradient_in(self, tensor: Tensor, place: Tensor) -> None:
        """Note that the gradient of a tensor is computed in place of another tensor, or of itself."""
        self._gradients[tensor] = place

    def value(self, tensor: Tensor) -> Tensor:
        """The tensor that has the value of another one in the reverse pass."""
        return self._values.get(tensor, tensor)

    def value_in(self, tensor: Tensor, place: Tensor) -> None:
        """Note that the value of a tensor is from now on in another tensor."""
        self._values[tensor] = place

    def bypass(self, out: Tensor, inp: Tensor) -> None:
        """Note a residual connection from `inp` to `out`: the gradient of `out` reaches `inp` past the layer that reads
        it, whose reverse adds it. Raises GraphError if another residual connection begins at `inp`."""
        if inp in self._bypasses:
            raise GraphError(f"two residual connections begin at {inp}")
        if self.needs_gradient(inp):
            self._needed.add(out)
            self._bypasses[inp] = out

    def bypassing(self, tensor: Tensor) -> Tensor | None:
        """The gradient that reaches a tensor past the layer that reads it, taken from the tape."""
        out = self._bypasses.pop(tensor, None)
        return out and self.gradient(out)

    def check_complete(self) -> None:
        """Raise GraphError for a gradient of which a part is missing, at the end of the reverse pass."""
        for tensor in self._bypasses:
            raise GraphError(f"a residual connection begins at {tensor}, but no layer that reads it adds its gradient")

    def ready(self) -> list[Share]:
        """The shares that nothing to come is computed for, taken from the tape."""
        awaited = {reverse.recomputed for reverse in self.reverses} - {None}
        found = [share for share in self.shares if share.needs not in awaited]
        self.shares = [share for share in self.shares if share.needs in awaited]
        return found
