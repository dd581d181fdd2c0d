"""Folders, parts and configurations as other programs write them, and each of their defects."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gpt2core.networks import shards
from gpt2core.networks.gpt2 import checkpoint
from gpt2core.networks.gpt2.checkpoint import read_checkpoint, read_model, write_checkpoint
from gpt2core.spec.errors import (
    BadMagic,
    BadVersion,
    FileError,
    ShapeMismatch,
    UnreadableFile,
)
from gpt2core.spec.models import ModelConfig
from tests.support.checkpoints import MODEL, assert_same, buffers, halves, random_weights, rewrite, write_bf16

PART = "model-00001-of-00002.safetensors"
CONFIG = {"model_type": "gpt2", "n_embd": 24, "n_head": 3, "n_layer": 2, "n_positions": 11, "vocab_size": 50,
          "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "n_inner": None}  # fmt: skip


@pytest.fixture(params=["F32", "BF16"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder as `save_pretrained` writes it with a limit on the size of a file: two parts and an index."""
    write_checkpoint(tmp_path / "whole.safetensors", MODEL, random_weights())
    tensors = load_file(tmp_path / "whole.safetensors")
    target = tmp_path / "gpt2"
    target.mkdir()
    placed: dict[str, str] = {}
    for number, names in enumerate((list(tensors)[::2], list(tensors)[1::2]), start=1):
        file = f"model-{number:05}-of-00002.safetensors"
        mine = {f"transformer.{name}": tensors[name] for name in names}
        if request.param == "BF16":
            write_bf16(target / file, mine)
        else:
            save_file(mine, target / file, {"format": "pt"})
        placed |= dict.fromkeys(mine, file)
    index = {"metadata": {"total_size": 1}, "weight_map": placed}
    (target / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    (target / "config.json").write_text(json.dumps(CONFIG))
    return target


def test_a_folder_and_its_index_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "CONVERTED_AT_ONCE", 100)  # so that tensors are converted in parts
    about = checkpoint.about(folder)
    expected = random_weights()
    if about["dtype"] == "BF16":
        expected = {name: (halves(a).astype(np.uint32) << 16).view(np.float32) for name, a in expected.items()}
    for path in (folder, folder / "model.safetensors.index.json"):
        assert read_model(path) == MODEL
        got = buffers()
        read_checkpoint(path, MODEL, got)
        assert_same(got, expected)
        assert checkpoint.about(path) == about
    assert about == {"format": "safetensors", "dtype": about["dtype"]}


def test_a_folder_of_one_file_is_read(folder: Path) -> None:
    """A file that its link names otherwise is known by its content, as in huggingface_hub's cache."""
    (folder / "model.safetensors").symlink_to(folder.parent / "whole.safetensors")
    assert_read(folder)
    blob = (folder.parent / "whole.safetensors").rename(folder.parent / "248dfc39")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(blob)
    assert_read(folder)
    assert_read(blob)


def assert_read(path: Path) -> None:
    got = buffers()
    read_checkpoint(path, MODEL, got)
    assert_same(got, random_weights())


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda f: (f / "model-00002-of-00002.safetensors").unlink(), UnreadableFile, "00002-of-00002.*No such file"),
        (lambda f: patched(f / "model.safetensors.index.json", "weight_map", {}), ShapeMismatch, r"no tensor wte"),
        (
            lambda f: patched(f / "model.safetensors.index.json", "weight_map", {"wte.weight": "../whole.safetensors"}),
            BadMagic, r"'\.\./whole\.safetensors'; accepted: a file beside the index",
        ),
        (
            lambda f: patched(f / "model.safetensors.index.json", "weight_map", {"x": PART}),
            ShapeMismatch, f"places x in {PART}, which has no such tensor",
        ),
        (lambda f: (f / "model.safetensors.index.json").write_text("{}"), BadMagic, "it has no weight_map"),
        (lambda f: (f / "model.safetensors.index.json").unlink(), BadMagic, "neither model.safetensors nor model.saf"),
        (lambda f: (f / "config.json").write_text("{"), BadMagic, r"config\.json: is no JSON"),
        (lambda f: patched(f / "config.json", "n_head", "3"), BadVersion, "n_head = '3'; supported: a whole number"),
    ],
    ids=["a part gone", "empty index", "outside", "not in its part", "no index", "nothing", "config", "heads"],
)  # fmt: skip
def test_a_folder_with_a_defect(
    folder: Path, change: Callable[[Path], Any], error: type[FileError], words: str
) -> None:
    change(folder)
    with pytest.raises(error, match=words):
        read_model(folder)


def patched(path: Path, key: str, value: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))


@pytest.mark.parametrize(
    ("key", "value", "error", "words"),
    [
        ("architectures", ["GPTNeoForCausalLM"], BadVersion, 'architectures = ."GPTNeoForCausalLM".'),
        ("auto_map", {"AutoModel": "own.Model"}, BadVersion, "auto_map = .*computes another function"),
        ("layer_norm_epsilon", 1e-3, BadVersion, "epsilon = 0.001 computes another function; supported: 1e-05"),
        ("activation_function", "relu", BadVersion, 'activation_function = "relu".*supported: "gelu_new"'),
        ("model_type", "gpt_neo", BadVersion, 'model_type = "gpt_neo"'),
        ("scale_attn_by_inverse_layer_idx", True, BadVersion, "scale_attn_by_inverse_layer_idx = true"),
        ("scale_attn_weights", False, BadVersion, "scale_attn_weights = false"),
        ("tie_word_embeddings", False, BadVersion, "tie_word_embeddings = false"),
        ("add_cross_attention", True, BadVersion, "add_cross_attention = true"),
        ("pruned_heads", {"0": [1]}, BadVersion, "pruned_heads = .*supported: {}"),
        ("num_attention_heads", 5, ShapeMismatch, r"multiple of heads .5"),
        ("num_hidden_layers", 3, ShapeMismatch, "n_layer = 3; the tensors beside it have 2"),
        ("hidden_size", 48, ShapeMismatch, "n_embd = 48; the tensors beside it have 24"),
        ("max_position_embeddings", 12, ShapeMismatch, "n_positions = 12"),
        ("n_ctx", 12, ShapeMismatch, "n_ctx = 12; the tensors beside it have 11"),
        ("n_layer", 3, ShapeMismatch, "n_layer = 3; the tensors beside it have 2"),
        ("n_inner", 5, ShapeMismatch, "n_inner = 5; the tensors beside it have 96"),
        ("vocab_size", 51, ShapeMismatch, "vocab_size = 51"),
        ("n_embd", 48, ShapeMismatch, "n_embd = 48; the tensors beside it have 24"),
    ],
)  # fmt: skip
def test_a_configuration_of_another_network_is_refused(
    folder: Path, key: str, value: object, error: type[FileError], words: str
) -> None:
    patched(folder / "config.json", key, value)
    with pytest.raises(error, match=words):
        read_model(folder)
    with pytest.raises(error, match=words):
        read_checkpoint(folder, MODEL, buffers())


def test_sizes_of_a_configuration_may_have_their_other_names(folder: Path) -> None:
    patched(folder / "config.json", "num_attention_heads", 6)
    assert read_model(folder).heads == 6


def test_an_adapter_beside_the_weights_is_refused(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(BadVersion, match=r"adapter_config\.json: names weights to add to these.* merge them"):
        read_model(folder)


def test_a_configuration_may_begin_with_a_byte_order_mark(folder: Path) -> None:
    text = (folder / "config.json").read_bytes()
    (folder / "config.json").write_bytes(b"\xef\xbb\xbf" + text)
    assert read_model(folder).heads == 3


@pytest.mark.parametrize(
    ("name", "words"),
    [("lm_head.weight", "differs from wte.weight"),
     *((name, f"{name} is no tensor of GPT-2") for name in (
         "h.0.crossattention.c_attn.weight", "lm_head.bias", "ln_emb.weight", "score.weight",
         "token_type_embeddings.weight", "embed_proj.weight"))],
)  # fmt: skip
def test_tensors_that_would_be_ignored_and_change_the_function_are_refused(
    tmp_path: Path, name: str, words: str
) -> None:
    path = tmp_path / "model.safetensors"
    write_checkpoint(path, MODEL, random_weights())
    rewrite(path, lambda t: t.update({name: np.zeros((50, 24), np.float32)}))
    with pytest.raises(BadVersion, match=words):
        read_model(path)


@pytest.mark.parametrize("start", [b"PK\x03\x04\x00\x00\x08\x08\x00\x00", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."])
@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors", "pytorch_model.pt"])
def test_a_pickle_is_refused_with_the_way_to_convert_it(tmp_path: Path, name: str, start: bytes) -> None:
    (tmp_path / name).write_bytes(start + b"\0" * 2000)
    paths = [tmp_path / name, *([tmp_path] if name == "pytorch_model.bin" else [])]
    for path in paths:
        with pytest.raises(BadMagic, match=r"pickle of PyTorch.*save_pretrained\('NEW'\)"):
            read_model(path)


@pytest.mark.parametrize(
    ("metadata", "beside", "heads"),
    [
        ({"n_head": "2"}, {"n_head": 4, "n_embd": 128}, 2),
        ({"config": json.dumps({"n_head": 8, "n_embd": 128})}, None, 8),
        ({}, {"n_head": 4, "n_embd": 128}, 4),
        ({}, {"n_head": 4, "n_embd": 256}, 2),
        ({"config": "not json"}, None, 2),
    ],
    ids=["metadata", "config in metadata", "config beside", "config of another model", "64 channels a head"],
)
def test_where_the_number_of_heads_comes_from(
    tmp_path: Path, metadata: dict[str, str], beside: dict[str, int] | None, heads: int
) -> None:
    model = ModelConfig(layers=1, heads=1, channels=128, vocab=10, context=4)
    path = tmp_path / "model.safetensors"
    write_checkpoint(path, model, buffers(model, 0.0))
    rewrite(path, lambda _: None, metadata)
    if beside is not None:
        (tmp_path / "config.json").write_text(json.dumps(beside))
    assert read_model(path).heads == heads
