"""Make the golden values against which `make test` checks the kernels and the trainer without PyTorch.

    python -m tests.golden.make_golden

Inputs are float32, so that both sides start from the same numbers. PyTorch's results in float64 are stored as float64.
The whole model is trained in float64 and in float32, with PyTorch's AdamW.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from bench.torch_gpt2 import GPT2, attention, load_weights, random_model, train, train_with_norms, weights_of
from gpt2core.spec import networks
from gpt2core.spec.config import TrainConfig
from tests.networks import test_gru
from tests.support.networks import (
    cases,
    lstms,
    readers,
    resnets,
    seq2seqs,
    torch_gru,
    torch_lstms,
    torch_reader,
    torch_seq2seq,
    torch_toys,
    torch_trained,
    vggs,
)

FOLDER = Path(__file__).parent
N, C, OC, NH, B, T, V, VP, CONTEXT = 7, 24, 40, 3, 2, 5, 50, 128, 16
SMALL = {
    "model": {"layers": 2, "heads": 2, "channels": 32, "vocab": 61, "context": 16},
    "batch": 3,
    "seq": 10,
    "steps": 10,
    "lr": 1e-3,
}


class Inputs:
    """Random float32 inputs, and float64 leaf tensors with the same values."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.arrays: dict[str, np.ndarray] = {}

    def draw(self, name: str, *shape: int, scale: float = 1.0, shift: float = 0.0) -> Tensor:
        values = (shift + scale * self.rng.standard_normal(shape)).astype(np.float32)
        self.arrays[name] = values
        return torch.from_numpy(values.astype(np.float64)).requires_grad_(True)

    def draw_integers(self, name: str, high: int, *shape: int) -> Tensor:
        self.arrays[name] = self.rng.integers(high, size=shape, dtype=np.int32)
        return torch.from_numpy(self.arrays[name].astype(np.int64))

    def save(self, name: str, **outputs: Tensor | None) -> None:
        values: dict[str, Any] = {key: value.detach().numpy() for key, value in outputs.items() if value is not None}
        assert len(values) == len(outputs), "an output has no gradient"
        np.savez_compressed(FOLDER / f"{name}.npz", **{**self.arrays, **values})


def make_encoder() -> None:
    given = Inputs(1)
    wte, wpe = given.draw("wte", VP, C), given.draw("wpe", CONTEXT, C)
    tokens = given.draw_integers("tokens", V // 4, B * T)  # from few values, so that some are repeated
    given.arrays["positions"] = np.tile(np.arange(T, dtype=np.int32), B)
    out = wte[tokens] + wpe[torch.arange(T).repeat(B)]
    out.backward(given.draw("dout", B * T, C))
    given.save("encoder", out=out, dwte=wte.grad, dwpe=wpe.grad)


def make_layernorm() -> None:
    given = Inputs(2)
    inp = given.draw("inp", N, C, scale=2.0, shift=0.7)
    weight, bias = given.draw("weight", C, scale=0.3, shift=1.0), given.draw("bias", C)
    out = F.layer_norm(inp, (C,), weight, bias, eps=1e-5)
    out.backward(given.draw("dout", N, C))
    mean, rstd = inp.mean(1), 1 / torch.sqrt(inp.var(1, unbiased=False) + 1e-5)
    given.save("layernorm", out=out, mean=mean, rstd=rstd, dinp=inp.grad, dweight=weight.grad, dbias=bias.grad)


def make_matmul() -> None:
    given = Inputs(3)
    inp, weight, bias = given.draw("inp", N, C), given.draw("weight", OC, C), given.draw("bias", OC)
    out = F.linear(inp, weight, bias)
    out.backward(given.draw("dout", N, OC))
    given.save("matmul", out=out, dinp=inp.grad, dweight=weight.grad, dbias=bias.grad)


def make_attention() -> None:
    given = Inputs(4)
    qkv = given.draw("qkv", B, T, 3 * C)
    out = attention(qkv, NH)
    out.backward(given.draw("dout", B, T, C))
    given.save("attention", out=out, dqkv=qkv.grad)


def make_gelu() -> None:
    given = Inputs(5)
    inp = given.draw("inp", N, 4 * C, scale=3.0)
    out = F.gelu(inp, approximate="tanh")
    out.backward(given.draw("dout", N, 4 * C))
    given.save("gelu", out=out, dinp=inp.grad)


def make_residual() -> None:
    given = Inputs(6)
    given.save("residual", out=given.draw("inp", N, C) + given.draw("branch", N, C))


def make_cross_entropy() -> None:
    given = Inputs(7)
    logits = given.draw("logits", N, VP, scale=4.0)
    loss = F.cross_entropy(logits[:, :V], given.draw_integers("targets", V, N), reduction="none")
    loss.mean().backward()
    given.save("cross_entropy", loss=loss, dlogits=logits.grad)


def make_adamw() -> None:
    """Store weights and moments after steps 1, 2 and 10 of ten steps, each with a new gradient."""
    for name, decay in (("adamw", 0.0), ("adamw_decay", 0.1)):
        given = Inputs(8)
        weights = given.draw("weights", 37)
        gradients = given.draw("gradients", 10, 37, scale=0.1)
        optimizer = torch.optim.AdamW([weights], lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=decay)
        given.arrays["settings"] = np.array([1e-2, 0.9, 0.95, 1e-8, decay])
        outputs = {}
        for step in range(1, 11):
            weights.grad = gradients[step - 1].detach().clone()
            optimizer.step()
            if step in (1, 2, 10):
                state = optimizer.state[weights]
                outputs[f"weights{step}"] = weights.detach().clone()
                outputs[f"first{step}"] = state["exp_avg"].clone()
                outputs[f"second{step}"] = state["exp_avg_sq"].clone()
        given.save(name, **outputs)


def make_sgd() -> None:
    """Store weights after steps 1, 2 and 10 of ten steps, each with a new gradient: SGD plain, with momentum, and with
    Nesterov's and weight decay."""
    given = Inputs(11)
    weights, gradients = given.draw("weights", 37), given.draw("gradients", 10, 37, scale=0.1)
    outputs = {}
    for name, momentum, nesterov, decay in (("plain", 0.0, False, 0.0), ("momentum", 0.9, False, 0.1),
                                            ("nesterov", 0.8, True, 0.1)):  # fmt: skip
        given.arrays[f"settings_{name}"] = np.array([0.05, momentum, nesterov, decay])
        mine = weights.detach().clone()
        optimizer = torch.optim.SGD([mine], lr=0.05, momentum=momentum, nesterov=nesterov, weight_decay=decay)
        for step in range(1, 11):
            mine.grad = gradients[step - 1].detach().clone()
            optimizer.step()
            if step in (1, 2, 10):
                outputs[f"{name}{step}"] = mine.detach().clone()
    given.save("sgd", **outputs)


def make_small_gpt2() -> None:
    config = TrainConfig.from_dict(SMALL)
    batches = 4  # fewer than the steps use: the stream repeats, and the loss decreases
    stream = np.random.default_rng(9).integers(
        config.model.vocab, size=config.batch * config.seq * batches + 5, dtype=np.uint16
    )
    model: Any = config.model
    single = random_model(model, seed=10)
    initial = weights_of(single)
    double = GPT2(model).double()
    load_weights(double, initial)
    arrays: dict[str, Any] = {f"initial.{name}": array for name, array in initial.items()}
    losses64, losses32 = train(double, config, stream), train(single, config, stream)
    arrays |= {f"final.{name}": array for name, array in weights_of(single).items()}
    arrays |= {f"final64.{name}": array for name, array in weights_of(double).items()}
    arrays |= {"config": np.array(json.dumps(SMALL)), "tokens": stream}
    np.savez_compressed(FOLDER / "small_gpt2.npz", losses64=losses64, losses32=losses32, **arrays)


def make_clipped_gpt2() -> None:
    """Train the small GPT-2 with two micro-batches per step and a gradient limit that half of the steps reach."""
    with np.load(FOLDER / "small_gpt2.npz") as arrays:
        stream, initial = arrays["tokens"], {k[8:]: a for k, a in arrays.items() if k.startswith("initial.")}
    change = {"batch": 2, "grad_accum": 2, "grad_clip": 1.0}
    config = TrainConfig.from_dict({**SMALL, **change})
    model: Any = config.model
    double = GPT2(model).double()
    load_weights(double, initial)
    losses, norms = train_with_norms(double, config, stream)
    final: dict[str, Any] = {f"final.{name}": weights_of(double)[name] for name in ("qkvw", "lnfb")}
    np.savez_compressed(
        FOLDER / "clipped_gpt2.npz", change=np.array(json.dumps(change)), losses64=losses, norms64=norms, **final
    )


def make_toys() -> None:
    """Store PyTorch's results for the toy networks of tests/support/networks."""
    for name in cases.SHAPES:
        networks.NETWORKS[name] = f"tests.support.networks.{name}"
        losses, weights = torch_toys.train(name)
        arrays: dict[str, Any] = {"losses": losses, **weights}
        np.savez_compressed(FOLDER / f"{name}.npz", **arrays)


def make_lstms() -> None:
    """Store PyTorch's losses for the LSTMs of tests/networks."""
    for case in lstms.CASES:
        losses, _ = torch_lstms.train(lstms.config(case))
        np.savez_compressed(FOLDER / f"{case}.npz", losses=losses)


def make_gru() -> None:
    """Store PyTorch's losses for the GRU of tests/networks."""
    networks.NETWORKS["gru"] = "tests.support.networks.gru"
    np.savez_compressed(FOLDER / "gru.npz", losses=torch_gru.losses(test_gru.config()))


def make_resnet() -> None:
    """Store PyTorch's losses and accuracies for the ResNet of tests/networks."""
    losses, accuracies, _ = torch_trained.train(resnets.config())
    np.savez_compressed(FOLDER / "resnet.npz", losses=losses, accuracies=accuracies)


def make_vgg() -> None:
    """Store PyTorch's losses and accuracies for the VGG of tests/networks."""
    losses, accuracies, _ = torch_trained.train(vggs.config())
    np.savez_compressed(FOLDER / "vgg.npz", losses=losses, accuracies=accuracies)


def make_seq2seq() -> None:
    """Store PyTorch's losses for the seq2seq of tests/networks."""
    np.savez_compressed(FOLDER / "seq2seq.npz", losses=torch_seq2seq.losses(seq2seqs.config()))


def make_reader() -> None:
    """Store PyTorch's losses for the reader of tests/networks."""
    np.savez_compressed(FOLDER / "reader.npz", losses=torch_reader.losses(readers.config()))


def main() -> None:
    torch.set_num_threads(1)
    for make in (make_encoder, make_layernorm, make_matmul, make_attention, make_gelu, make_residual,
                 make_cross_entropy, make_adamw, make_sgd, make_small_gpt2, make_clipped_gpt2, make_toys,
                 make_lstms, make_gru, make_resnet, make_vgg, make_seq2seq, make_reader):  # fmt: skip
        make()


if __name__ == "__main__":
    main()
