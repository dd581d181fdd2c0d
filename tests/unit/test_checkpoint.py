"""Checkpoints in both formats: round trips, layouts written by hand, and every kind of defect."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from gpt2core.networks.gpt2 import checkpoint
from gpt2core.networks.gpt2.checkpoint import read_checkpoint, read_model, write_checkpoint
from gpt2core.networks.gpt2.initial import initial_weights
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
from tests.support.checkpoints import MODEL, Weights, assert_same, buffers, patch_header, random_weights, rewrite


@pytest.fixture(params=[".bin", ".safetensors"])
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"model{request.param}"
    write_checkpoint(path, MODEL, random_weights())
    return path


@pytest.fixture
def saved_bin(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "model.bin", MODEL, random_weights())
    return tmp_path / "model.bin"


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


def test_the_number_format_is_named(saved: Path) -> None:
    expected = {".bin": {"format": "llm.c", "dtype": "F32"}, ".safetensors": {"format": "safetensors", "dtype": "F32"}}
    assert checkpoint.about(saved) == expected[saved.suffix]


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
