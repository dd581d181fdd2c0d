"""Weights in safetensors, by the names of a torch module with `source_embedding`, `encoder`, `target_embedding`,
`decoder`, `combine` and `head`."""

from gpt2core.networks import torch_modules
from gpt2core.networks.seq2seq.tensors import PRESETS, Seq2seq, weight_specs

FILES = torch_modules.Files(
    "seq2seq", "source_embedding.weight", "decoder.weight_hh_l0",
    {
        "source_embedding": "source_embedding.weight", "target_embedding": "target_embedding.weight",
        "combine": "combine.weight", "head": "head.weight", "head_bias": "head.bias",
        **torch_modules.gru("encoder"), **torch_modules.gru("decoder", ("",)),
    },
    ("encoder",), lambda vocab, embedding, hidden: Seq2seq(embedding, hidden, vocab), weight_specs, PRESETS,
)  # fmt: skip
