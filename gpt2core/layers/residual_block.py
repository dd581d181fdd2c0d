"""Basic blocks of a ResNet: y = ReLU(conv(ReLU(conv(x))) + s(x)), where s is x or a convolution of it."""

from functools import partial

from gpt2core.layers.convolution import Convolutions
from gpt2core.layers.windows import Block
from gpt2core.step.ops import Tensor


def forward(convs: Convolutions, block: Block, *, out: Tensor, inner: Tensor, inp: Tensor) -> None:
    """Add a block; `inner` is what is between its convolutions, and its input is a ReLU's output. With fusion a block
    is one task a slice.

    Reverse: the gradients of the input and of all weights. That of the input may lie in the output's place, if the
    shortcut is the input.
    """
    with convs.step.fused():
        convs.apply(block.first, out=inner, inp=inp)
        if block.shortcut:
            convs.apply(block.shortcut, out=out, inp=inp, rectify=False)
        convs.apply(block.second, out=out, inp=inner, shortcut=out if block.shortcut else inp)
    reverse = partial(_backward, convs, block, out=out, inner=inner, inp=inp)
    convs.step.tape.leave(reverse, out=out, inp=inp, kind="conv", weights=convs.parameters(*block.every))


def _backward(convs: Convolutions, block: Block, *, out: Tensor, inner: Tensor, inp: Tensor) -> None:
    tape = convs.step.tape
    dout, dinner, dinp = tape.gradient(out), tape.gradient(inner), tape.gradient(inp)
    with convs.step.fused():
        convs.share_weight_gradient(block.second, dout=dout, inp=inner)
        convs.apply_backward(block.second, dinp=dinner, dout=dout, inp=inner)
        if block.shortcut:
            convs.share_weight_gradient(block.shortcut, dout=dout, inp=inp)
            convs.apply_backward(block.shortcut, dinp=dinp, dout=dout)
        convs.share_weight_gradient(block.first, dout=dinner, inp=inp)
        convs.apply_backward(block.first, dinp=dinp, dout=dinner, past=dinp if block.shortcut else dout, inp=inp)
