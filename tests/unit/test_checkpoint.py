"""Checkpoints in both formats: round trips, layouts written by hand, and every kind of defect."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from gpt2core.networks import shards
from gpt2core.networks.gpt2 import checkpoint
from gpt2core.networks.gpt2.checkpoint import read_checkpoint, read_model, write_checkpoint
from gpt2core.networks.gpt2.initial import initial_weights
from gpt2core.networks.gpt2.tensors import weight_specs
from gpt2core.spec.errors import (
    BadMagic,
    BadVersion,
    ConfigError,
    CountMismatch,
    FileError,
    ShapeMismatch,
    TruncatedFile,
    UnreadableFile,
)
from gpt2core.spec.models import PRESETS, ModelConfig

MODEL = ModelConfig(layers=2, heads=3, channels=24, vocab=50, context=11)
Weights = dict[str, np.ndarray]


def buffers(model: ModelConfig = MODEL, fill: float = np.nan) -> Weights:
    return {spec.name: np.full(spec.shape, fill, dtype=np.float32) for spec in weight_specs(model)}


def random_weights(model: ModelConfig = MODEL, seed: int = 0) -> Weights:
    rng = np.random.default_rng(seed)
    weights = {spec.name: rng.standard_normal(spec.shape, dtype=np.float32) for spec in weight_specs(model)}
    weights["wte"][model.vocab :] = 0.0
    return weights


def assert_same(got: Weights, expected: Weights) -> None:
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name], array, err_msg=name)


@pytest.fixture(params=[".bin", ".safetensors"])
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"model{request.param}"
    write_checkpoint(path, MODEL, random_weights())
    return path


@pytest.fixture
def saved_bin(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "model.bin", MODEL, random_weights())
    return tmp_path / "model.bin"


def patch_header(path: Path, index: int, value: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[4 * index : 4 * index + 4] = value.to_bytes(4, "little", signed=True)
    path.write_bytes(raw)


def rewrite(path: Path, change: Callable[[Weights], Any], metadata: dict[str, str] | None = None) -> None:
    """Save a safetensors file again after a change to its tensors."""
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata if metadata is not None else {"n_head": str(MODEL.heads)})


def test_reads_what_was_written(saved: Path) -> None:
    got = buffers()
    read_checkpoint(saved, MODEL, got)
    assert_same(got, random_weights())
    assert read_model(saved) == MODEL
    assert [entry.name for entry in saved.parent.iterdir()] == [saved.name]
    assert saved.stat().st_mode & 0o777 == 0o666 & ~_umask(saved.parent)


def _umask(folder: Path) -> int:
    probe = folder / "probe"
    probe.touch()
    mask = 0o666 & ~probe.stat().st_mode
    probe.unlink()
    return mask


def test_a_preset_is_known_by_its_sizes(tmp_path: Path) -> None:
    tiny = PRESETS["tiny"]
    for suffix in checkpoint.SUFFIXES:
        write_checkpoint(tmp_path / f"model{suffix}", tiny, buffers(tiny, 0.0))
        assert read_model(tmp_path / f"model{suffix}") == tiny


def test_llmc_layout(saved_bin: Path) -> None:
    """The header's eight numbers, then the tensors in the order and shapes that llm.c documents."""
    raw = saved_bin.read_bytes()
    header = np.frombuffer(raw[:1024], dtype="<i4")
    assert header[:8].tolist() == [20240326, 3, 11, 50, 2, 3, 24, 128]
    assert not header[8:].any()
    C, L = 24, 2
    shapes = {
        "wte": (128, C), "wpe": (11, C), "ln1w": (L, C), "ln1b": (L, C), "qkvw": (L, 3 * C, C), "qkvb": (L, 3 * C),
        "attprojw": (L, C, C), "attprojb": (L, C), "ln2w": (L, C), "ln2b": (L, C), "fcw": (L, 4 * C, C),
        "fcb": (L, 4 * C), "fcprojw": (L, C, 4 * C), "fcprojb": (L, C), "lnfw": (C,), "lnfb": (C,),
    }  # fmt: skip
    values, at = np.frombuffer(raw[1024:], dtype="<f4"), 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        np.testing.assert_array_equal(values[at : at + size].reshape(shape), random_weights()[name], err_msg=name)
        at += size
    assert at == len(values)


def test_llmc_bf16_is_widened_exactly(saved_bin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "CONVERTED_AT_ONCE", 100)
    raw = saved_bin.read_bytes()
    upper = np.frombuffer(raw[1024:], dtype="<u2")[1::2]
    saved_bin.write_bytes(raw[:1024] + upper.tobytes())
    patch_header(saved_bin, 1, 5)
    got = buffers()
    read_checkpoint(saved_bin, MODEL, got)
    expected = {
        name: (array.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        for name, array in random_weights().items()
    }
    assert_same(got, expected)
    assert read_model(saved_bin) == MODEL


def test_hugging_face_layout(tmp_path: Path) -> None:
    """Conv1D matrices are (in, out), every layer has its own tensors, the vocabulary has no padding."""
    write_checkpoint(tmp_path / "model.safetensors", MODEL, random_weights())
    tensors, ours = load_file(tmp_path / "model.safetensors"), random_weights()
    assert tensors["wte.weight"].shape == (50, 24)
    assert tensors["h.1.attn.c_attn.weight"].shape == (24, 72)
    assert tensors["h.1.mlp.c_fc.weight"].shape == (24, 96)
    assert tensors["h.1.mlp.c_proj.weight"].shape == (96, 24)
    np.testing.assert_array_equal(tensors["h.1.attn.c_attn.weight"].T, ours["qkvw"][1])
    np.testing.assert_array_equal(tensors["h.0.attn.c_proj.weight"].T, ours["attprojw"][0])
    np.testing.assert_array_equal(tensors["h.1.ln_2.bias"], ours["ln2b"][1])
    np.testing.assert_array_equal(tensors["ln_f.weight"], ours["lnfw"])
    assert len(tensors) == 2 * 12 + 4
    with safe_open(tmp_path / "model.safetensors", "numpy") as file:
        assert file.metadata() == {"format": "pt", "n_head": "3"}


def test_hugging_face_files_as_others_write_them(tmp_path: Path) -> None:
    """With a prefix, a mask buffer, a tied head and half precision; values are rounded to float16."""
    path = tmp_path / "model.safetensors"
    write_checkpoint(path, MODEL, random_weights())
    tensors = {f"transformer.{name}": array.astype(np.float16) for name, array in load_file(path).items()}
    tensors["transformer.h.0.attn.bias"] = np.ones((1, 1, 11, 11), dtype=np.float16)
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"]
    save_file(tensors, path)
    got = buffers()
    read_checkpoint(path, MODEL, got)
    assert_same(got, {name: array.astype(np.float16).astype(np.float32) for name, array in random_weights().items()})


def halves(array: np.ndarray) -> np.ndarray:
    """The bfloat16 of each float32, cut off, as its bits."""
    return (array.view(np.uint32) >> 16).astype(np.uint16)


def write_bf16(path: Path, tensors: Weights, metadata: dict[str, str] | None = None) -> None:
    """A safetensors file whose tensors are BF16; NumPy has no such dtype, so the header is written here."""
    header: dict[str, Any] = {"__metadata__": metadata or {"format": "pt"}}
    at, parts = 0, []
    for name, array in tensors.items():
        bits = halves(np.ascontiguousarray(array)).tobytes()
        header[name] = {"dtype": "BF16", "shape": list(array.shape), "data_offsets": [at, at + len(bits)]}
        at += len(bits)
        parts.append(bits)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


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


def test_the_number_format_is_named(saved: Path) -> None:
    expected = {".bin": {"format": "llm.c", "dtype": "F32"}, ".safetensors": {"format": "safetensors", "dtype": "F32"}}
    assert checkpoint.about(saved) == expected[saved.suffix]


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
        ("layer_norm_epsilon", 1e-3, BadVersion, "epsilon = 0.001 computes another function; supported: 1e-05"),
        ("activation_function", "relu", BadVersion, 'activation_function = "relu".*supported: "gelu_new"'),
        ("model_type", "gpt_neo", BadVersion, 'model_type = "gpt_neo"'),
        ("scale_attn_by_inverse_layer_idx", True, BadVersion, "scale_attn_by_inverse_layer_idx = true"),
        ("scale_attn_weights", False, BadVersion, "scale_attn_weights = false"),
        ("tie_word_embeddings", False, BadVersion, "tie_word_embeddings = false"),
        ("add_cross_attention", True, BadVersion, "add_cross_attention = true"),
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


def test_a_configuration_may_begin_with_a_byte_order_mark(folder: Path) -> None:
    text = (folder / "config.json").read_bytes()
    (folder / "config.json").write_bytes(b"\xef\xbb\xbf" + text)
    assert read_model(folder).heads == 3


@pytest.mark.parametrize(
    ("name", "words"),
    [("lm_head.weight", "differs from wte.weight"), ("h.0.crossattention.c_attn.weight", "is no tensor of GPT-2")],
)
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


def test_a_file_silent_on_heads_serves_any_number(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_checkpoint(path, MODEL, random_weights())
    rewrite(path, lambda _: None, {})
    read_checkpoint(path, MODEL, buffers())


def test_padded_rows_are_zero_whatever_the_file_holds(saved_bin: Path) -> None:
    weights = random_weights()
    weights["wte"][MODEL.vocab :] = np.nan
    write_checkpoint(saved_bin, MODEL, weights)
    got = buffers()
    read_checkpoint(saved_bin, MODEL, got)
    assert not got["wte"][MODEL.vocab :].any()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"layers": 3}, r"ln1w has shape \(2, 24\) in the file; the model needs \(3, 24\)"),
        ({"channels": 48}, r"wte has shape \(128, 24\) in the file; the model needs \(128, 48\)"),
        ({"context": 12}, r"wpe has shape \(11, 24\) in the file; the model needs \(12, 24\)"),
        ({"vocab": 51}, "vocab is 50 in the file; the model has 51"),
        ({"vocab": 200}, r"wte has shape \(128, 24\) in the file; the model needs \(256, 24\)"),
        ({"heads": 4}, "heads is 3 in the file; the model has 4"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_another_model_is_named_and_nothing_is_written(saved: Path, other: dict[str, Any], words: str) -> None:
    model = dataclasses.replace(MODEL, **other)
    got = buffers(model)
    with pytest.raises(ShapeMismatch, match=words):
        read_checkpoint(saved, model, got)
    assert all(np.isnan(array).all() for array in got.values())


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda t: t.pop("h.1.mlp.c_fc.bias"), ShapeMismatch, r"no tensor h\.1\.mlp\.c_fc\.bias"),
        (lambda t: t.pop("wpe.weight"), ShapeMismatch, r"no tensor wpe\.weight"),
        (
            lambda t: t.update({"h.0.attn.c_attn.weight": np.zeros((72, 24), np.float32)}),
            ShapeMismatch,
            r"h\.0\.attn\.c_attn\.weight has shape \(72, 24\) in the file.*\(24, 72\)",
        ),
        (lambda t: t.update({"ln_f.bias": np.zeros(24, np.int32)}), BadVersion, r"ln_f\.bias is I32; supported: F32"),
    ],
    ids=["a bias gone", "no positions", "not transposed", "integers"],
)
def test_a_safetensors_file_of_something_else(
    tmp_path: Path, change: Callable[[Weights], Any], error: type[FileError], words: str
) -> None:
    path = tmp_path / "model.safetensors"
    write_checkpoint(path, MODEL, random_weights())
    rewrite(path, change)
    with pytest.raises(error, match=words):
        read_model(path)
    with pytest.raises(error, match=words):
        read_checkpoint(path, MODEL, buffers())


@pytest.mark.parametrize("kept_bytes", [0, 7, 8, 500, -4])
def test_truncated(saved: Path, kept_bytes: int) -> None:
    saved.write_bytes(saved.read_bytes()[:kept_bytes])
    with pytest.raises(TruncatedFile, match="bytes"):
        read_model(saved)
    with pytest.raises(TruncatedFile, match="bytes"):
        read_checkpoint(saved, MODEL, buffers())


def test_more_than_the_header_says(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes() + b"\0\0\0\0")
    with pytest.raises(CountMismatch, match="bytes"):
        read_model(saved)


def test_another_kind_of_file(saved: Path) -> None:
    saved.write_text("PK: not a model, but long enough to be taken for the beginning of one\n" * 30)
    with pytest.raises(BadMagic):
        read_model(saved)


def test_a_safetensors_header_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes((20).to_bytes(8, "little") + b"{" + b"x" * 40)
    with pytest.raises(BadMagic):
        read_model(tmp_path / "model.safetensors")


def test_wrong_magic_and_version(saved_bin: Path) -> None:
    patch_header(saved_bin, 1, 4)
    with pytest.raises(BadVersion, match=r"version 4 is not supported; supported: 3 \(fp32\), 5 \(bf16\)"):
        read_model(saved_bin)
    patch_header(saved_bin, 0, 20240520)
    with pytest.raises(BadMagic, match=r"20240520.*20240326"):
        read_model(saved_bin)


@pytest.mark.parametrize(
    ("index", "value", "words"),
    [(4, 0, "layers = 0"), (5, 5, "multiple of heads"), (7, 64, "64 rows"), (3, -1, "vocab = -1")],
)
def test_a_header_of_no_model(saved_bin: Path, index: int, value: int, words: str) -> None:
    patch_header(saved_bin, index, value)
    with pytest.raises(ShapeMismatch, match=words):
        read_model(saved_bin)


def test_a_checkpoint_that_is_not_there(tmp_path: Path) -> None:
    for name in ("none.bin", "none.safetensors"):
        with pytest.raises(UnreadableFile, match="No such file"):
            read_model(tmp_path / name)


def test_only_known_suffixes_are_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"save.*model\.pt.*\.bin or \.safetensors") as caught:
        write_checkpoint(tmp_path / "model.pt", MODEL, random_weights())
    assert caught.value.field == "save"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "wrong", [np.zeros((128, 25), np.float32), np.zeros((128, 24)), np.zeros((24, 128), np.float32).T]
)
def test_buffers_of_another_layout_are_refused(saved: Path, wrong: np.ndarray) -> None:
    with pytest.raises(ValueError, match="wte is"):
        read_checkpoint(saved, MODEL, {**buffers(), "wte": wrong})


def test_initial_weights_are_gpt2s() -> None:
    model = ModelConfig(layers=8, heads=2, channels=64, vocab=500, context=100)
    got = buffers(model)
    initial_weights(model, 1337, got)
    deviations = {"wte": 0.02, "wpe": 0.01, "qkvw": 0.02, "attprojw": 0.02 / 4, "fcw": 0.02, "fcprojw": 0.02 / 4}
    for name, deviation in deviations.items():
        drawn = got[name][: model.vocab] if name == "wte" else got[name]
        assert abs(drawn.std() / deviation - 1) < 0.03, name
        assert abs(drawn.mean()) < 0.03 * deviation, name
    for name, array in got.items():
        if name not in deviations:
            assert (array == (1.0 if name in ("ln1w", "ln2w", "lnfw") else 0.0)).all(), name
    assert not got["wte"][model.vocab :].any()


def test_initial_weights_follow_the_seed_alone() -> None:
    first, same, other = buffers(), buffers(fill=3.0), buffers()
    initial_weights(MODEL, 7, first)
    initial_weights(MODEL, 7, same)
    initial_weights(MODEL, 8, other)
    assert_same(first, same)
    assert not np.array_equal(first["wte"], other["wte"])
    assert not np.array_equal(first["qkvw"][0], first["qkvw"][1])
