"""Images: CIFAR's binary files and every defect of theirs, synthetic images, and the order of the batches."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt2core.data import images
from gpt2core.data.images import Images, LabelOutOfRange, NotEnoughImages, checksums, open_images
from gpt2core.layers.images import MEAN, STD, classes_load, images_load
from gpt2core.spec.data import CIFAR
from gpt2core.spec.errors import BadMagic, CountMismatch, FileError, UnreadableFile

GOLDEN_BYTES = "b4b50046a24f8c89fa3f3d2985adb7fedd04db7ac683f9c5f04fc2cea9965103"
GOLDEN_PERMUTATIONS = [[10, 8, 6, 11, 4, 0, 5, 7, 1, 3, 9, 2], [2, 1, 9, 7, 6, 4, 0, 5, 3, 10, 8, 11]]
NAMES = [*CIFAR["cifar10"].train, CIFAR["cifar10"].test]
RECORD = 3073


def opened(data: str, **settings: Any) -> Images:
    usual = {"batch": 2, "side": 32, "classes": 10, "val_samples": None, "seed": 7}
    return open_images(data, **{**usual, **settings})


def records(labels: Sequence[int], first: int = 0) -> bytes:
    """Records whose pixels are the image's number."""
    return b"".join(bytes([label]) + bytes([first + i] * (RECORD - 1)) for i, label in enumerate(labels))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate(NAMES):
        (tmp_path / name).write_bytes(records([number, (number + 1) % 10, 9], 3 * number))
    return tmp_path


def test_a_folder_is_all_five_files_and_the_test_file(folder: Path) -> None:
    found = opened(f"cifar10:{folder}", val_samples=4)
    assert (len(found.train), len(found.val), len(found.test)) == (11, 4, 3)
    every = np.concatenate([found.train, found.val, found.test])
    assert found.samples[every].tolist() == [label for n in range(6) for label in (n, n + 1, 9)]
    assert found.samples[every + 1].tolist() == list(range(18))
    assert found.samples[every + RECORD - 1].tolist() == list(range(18))
    assert not found.samples.flags.writeable


def test_a_single_file_is_for_training(folder: Path) -> None:
    found = opened(f"cifar10:{folder / NAMES[1]}")
    assert found.samples[found.train].tolist() == [1, 2, 9]
    assert len(found.val) == len(found.test) == 0


def test_of_cifar100_the_fine_label_is_the_class(tmp_path: Path) -> None:
    path = tmp_path / "train.bin"
    path.write_bytes(b"".join(bytes([coarse, fine]) + bytes(3072) for coarse, fine in ((19, 99), (0, 5))))
    found = opened(f"cifar100:{path}", classes=100)
    assert found.samples[found.train].tolist() == [99, 5]


def test_checksums_are_those_of_the_files(folder: Path) -> None:
    expected = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in NAMES}
    assert checksums(f"cifar10:{folder}") == expected
    assert checksums("synthetic") == {}


def refused(error: type[FileError], data: str, **settings: Any) -> FileError:
    with pytest.raises(error) as raised:
        opened(data, **settings)
    assert raised.value.path
    return raised.value


def test_neither_a_folder_nor_a_file(tmp_path: Path) -> None:
    found = refused(UnreadableFile, f"cifar10:{tmp_path / 'none'}")
    assert "neither a folder with data_batch_1.bin, " in str(found)


def test_a_missing_file_is_named_with_all(folder: Path) -> None:
    (folder / NAMES[2]).unlink()
    found = refused(UnreadableFile, f"cifar10:{folder}")
    assert found.path.endswith("data_batch_3.bin")
    assert all(name in found.reason for name in NAMES)


def test_a_size_that_is_no_multiple_of_a_record(folder: Path) -> None:
    path = folder / NAMES[0]
    path.write_bytes(path.read_bytes() + bytes(17))
    found = refused(CountMismatch, f"cifar10:{folder}")
    assert found.reason == f"{3 * RECORD + 17} bytes are no multiple of a record's 3073: 17 remain"


def test_a_label_that_is_no_class(folder: Path) -> None:
    (folder / NAMES[3]).write_bytes(records([1, 10]))
    found = refused(LabelOutOfRange, f"cifar10:{folder}")
    assert found.path.endswith("data_batch_4.bin")
    assert found.reason == "label 10 in record 1; labels are 0 to 9"


def test_fewer_images_than_a_batch(folder: Path) -> None:
    assert "3 images for training; a batch needs 4" in str(
        refused(NotEnoughImages, f"cifar10:{folder / NAMES[0]}", batch=4)
    )
    assert "14 images for training, beside 1 for validation" in str(
        refused(NotEnoughImages, f"cifar10:{folder}", batch=15, val_samples=1)
    )
    assert "leaves none for training" in str(refused(NotEnoughImages, f"cifar10:{folder}"))
    (folder / NAMES[0]).write_bytes(b"")
    assert "0 bytes" in str(refused(NotEnoughImages, f"cifar10:{folder}"))


class Exploding:
    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("it was unpickled",)


def test_a_pickle_is_never_unpickled(folder: Path) -> None:
    (folder / NAMES[0]).write_bytes(pickle.dumps(Exploding()))
    (folder / NAMES[1]).rename(folder / "data_batch_2")
    for data in (folder / NAMES[0], folder):
        found = refused(BadMagic, f"cifar10:{data}")
        assert "cifar-10-binary.tar.gz (md5 c32a1d4ab5d03f1284b67883e8d87530)" in str(found)
        assert "never unpickled" in str(found)


@pytest.mark.parametrize("name", ["cifar-10-python.tar.gz", "data.bin"])
def test_an_archive_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x1f\x8b" + bytes(RECORD))
    assert "cifar-10-binary.tar.gz" in str(refused(BadMagic, f"cifar10:{path}"))


@pytest.mark.parametrize(("side", "classes"), [(32, 10), (5, 3)])
def test_synthetic_images_follow_the_seed_and_have_classes_templates(side: int, classes: int) -> None:
    how = {"side": side, "classes": classes, "val_samples": 50}
    found, again, other = (opened("synthetic", **how, seed=seed) for seed in (7, 7, 8))
    assert (len(found.train), len(found.val)) == (4096, 50)
    np.testing.assert_array_equal(found.samples, again.samples)
    assert not np.array_equal(found.samples, other.samples)
    rows = found.samples.reshape(4146, -1)
    assert set(rows[:, 0]) == set(range(classes))
    of_class = rows[rows[:, 0] == 1][:, 1:].astype(int)
    assert np.all(of_class.max(0) - of_class.min(0) < images.NOISE)
    assert np.abs(of_class.mean(0) - rows[rows[:, 0] == 2][:, 1:].mean(0)).max() > 20


def test_synthetic_bytes_are_the_same_on_every_machine() -> None:
    found = opened("synthetic", side=5, classes=3, val_samples=2)
    assert hashlib.sha256(found.samples.tobytes()).hexdigest() == GOLDEN_BYTES


def test_the_permutation_is_the_same_on_every_machine() -> None:
    assert images.permutation(12, 7, 0).tolist() == GOLDEN_PERMUTATIONS[0]
    assert images.permutation(12, 7, 1).tolist() == GOLDEN_PERMUTATIONS[1]


def test_every_epoch_has_every_image_once() -> None:
    offsets = np.arange(0, 70, 7, dtype=np.int64)
    found = images.order(offsets, 25, "epoch", 3)
    assert len(found) == 30
    epochs = found.reshape(3, 10)
    assert all(set(epoch) == set(offsets) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    np.testing.assert_array_equal(found[:10], images.order(offsets, 4, "epoch", 3))
    np.testing.assert_array_equal(images.order(offsets, 25, "none", 3), offsets)


def test_a_batch_is_normalised_within_a_halo_and_may_cross_an_epoch(folder: Path) -> None:
    found = opened(f"cifar10:{folder}", val_samples=10)
    taken = found.train[[3, 0, 2, 1, 4]]
    out, targets = np.full((2, 34 * 34 * 3), np.nan, np.float32), np.full(2, -1, np.int32)
    for row in (0, 1):  # batch 5 of 2 images: entries 10 and 11, which are 0 and 1 of five
        images_load(out, targets, found.samples, taken, 32, 2, 1, 2, row, row + 1)
    image = out.reshape(2, 34, 34, 3)
    assert targets.tolist() == [1, 0]
    for n, byte in enumerate((3, 0)):
        expected = (byte / 255 - np.array(MEAN)) / np.array(STD)
        np.testing.assert_allclose(image[n, 1:-1, 1:-1], np.broadcast_to(expected, (32, 32, 3)), rtol=1e-6)
    image[:, 1:-1, 1:-1] = 0
    assert not image.any()


def test_classes_are_loaded_without_images(folder: Path) -> None:
    """And images without classes: for ranks that have a part of the images and all classes."""
    found = opened(f"cifar10:{folder}", val_samples=10)
    taken = found.train[[3, 0, 2, 1, 4]]
    both, alone = (np.full((2, 34 * 34 * 3), np.nan, np.float32) for _ in range(2))
    targets, classes = np.full(2, -1, np.int32), np.full(2, -1, np.int32)
    images_load(both, targets, found.samples, taken, 32, 2, 1, 2, 0, 2)
    images_load(alone, np.zeros(0, np.int32), found.samples, taken, 32, 2, 1, 2, 0, 2)
    for row in (0, 1):
        classes_load(classes, found.samples, taken, 2, 1, 2, row, row + 1)
    assert classes.tolist() == targets.tolist() == [1, 0]
    np.testing.assert_array_equal(alone, both)


def test_pixels_are_read_channel_by_channel() -> None:
    pixels = np.arange(3 * 4 * 4, dtype=np.uint8)
    samples = np.concatenate([[2], pixels]).astype(np.uint8)
    out, targets = np.full((1, 6 * 6 * 3), np.nan, np.float32), np.zeros(1, np.int32)
    images_load(out, targets, samples, np.zeros(1, np.int64), 4, 1, 0, 0, 0, 1)
    expected = (pixels.reshape(3, 4, 4).transpose(1, 2, 0) / 255 - np.array(MEAN)) / np.array(STD)
    np.testing.assert_allclose(out.reshape(6, 6, 3)[1:-1, 1:-1], expected, rtol=2e-6)
