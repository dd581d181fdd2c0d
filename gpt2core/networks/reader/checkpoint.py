"""Weights in safetensors, by the names of a torch module with `embedding`, `document` and `query`."""

from gpt2core.networks import torch_modules
from gpt2core.networks.reader.tensors import PRESETS, Reader, weight_specs

FILES = torch_modules.Files(
    "reader", "embedding.weight", "document.weight_hh_l0",
    {"embedding": "embedding.weight", **torch_modules.gru("document"), **torch_modules.gru("query")},
    ("document", "query"), lambda vocab, embedding, hidden: Reader(embedding, hidden, vocab), weight_specs, PRESETS,
)  # fmt: skip
