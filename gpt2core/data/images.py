"""The images of a run: CIFAR's binary files, or synthetic ones of the same form.

Images stay bytes in memory, and files are mapped. A batch is converted while it is loaded (layers/images.py).
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpt2core.node.files import open_regular
from gpt2core.node.pages import map_files
from gpt2core.spec.data import CHANNELS, IMAGES, Cifar, Data, form_of
from gpt2core.spec.errors import BadMagic, CountMismatch, FileError, UnreadableFile

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int64]

PICKLE, GZIP = b"\x80", b"\x1f\x8b"  # first bytes; a label is smaller
PURPOSES = {"train": "training", "val": "validation", "test": "tests"}
VALIDATION_IMAGES = 1000  # by default, of a whole training set
SYNTHETIC_IMAGES, SYNTHETIC_BYTES = 4096, 64 << 20  # drawn for training, and their limit unless a batch needs more
MOST_ORDERED = 1 << 22  # places of the order, 32 MB; later epochs repeat the orders of earlier ones
SYNTHETIC_STREAM, ORDER_STREAM = 1, 2  # the seed's second word, so that what one seed determines is independent
TEMPLATE_SIDE, NOISE = 4, 96  # a class's template is a coarse pattern; noise is below NOISE
READ_RECORDS = 1024  # at a time


class LabelOutOfRange(FileError):
    """The data contains a label that is not a class."""

    slug = "label-out-of-range"


class NotEnoughImages(FileError):
    """The data has fewer images than one batch needs."""

    slug = "not-enough-images"


@dataclass(frozen=True)
class Images:
    """Bytes of some records, and the offset of each image's record: its label, then its pixels channel by channel."""

    samples: Bytes
    train: Offsets
    val: Offsets
    test: Offsets

    def of(self, split: str) -> Offsets:
        """The images of a split: train, val or test."""
        found: Offsets = getattr(self, split)
        return found


@dataclass(frozen=True)
class Asked:
    """What a run asks of its images. batch, side, classes: of synthetic ones; val_samples: see open_images."""

    batch: int
    side: int
    classes: int
    val_samples: int | None
    seed: int


def open_images(
    data: str, *, batch: int, side: int, classes: int, val_samples: int | None, seed: int, split: str = "train"
) -> Images:
    """The images of `data`: "synthetic", "cifar10:PATH" or "cifar100:PATH" (a folder, or one .bin file).

    `val_samples` is the number of images for validation, the last ones of the training set. None: 1000 of a folder,
    otherwise 0. `split`: the images that batches read. Raises UnreadableFile, BadMagic, CountMismatch, LabelOutOfRange,
    NotEnoughImages.
    """
    form, path = form_of(data)
    request = Asked(batch, side, classes, val_samples, seed)
    found: Images = form.opener(IMAGES)(form, path, request)
    if (count := len(found.of(split))) < batch:
        kept = f", beside {len(found.val)} for validation" if split == "train" and len(found.val) else ""
        raise NotEnoughImages(data, f"{count} images for {PURPOSES[split]}{kept}; a batch needs {batch}")
    return found


def open_synthetic(_form: Data, _path: str, request: Asked) -> Images:
    return synthetic_images(request.batch, request.side, request.classes, request.val_samples or 0, request.seed)


def open_cifar(form: Cifar, name: str, request: Asked) -> Images:
    """Map a data set's files. Of a single file all images are for training and validation."""
    path, val_samples = Path(name), request.val_samples
    train, test = files_of(form, path)
    for each in (*train, *test):
        scan(each, form)
    region, starts = map_files([*train, *test])
    record, label = form.record_bytes, form.labels - 1
    offsets = [start + label + record * np.arange(size // record, dtype=np.int64) for start, size in starts]
    every = np.concatenate(offsets[: len(train)])
    kept = (VALIDATION_IMAGES if test else 0) if val_samples is None else val_samples
    if kept >= len(every):
        raise NotEnoughImages(path, f"{len(every)} images; val_samples ({kept}) leaves none for training")
    cut = len(every) - kept
    return Images(region, every[:cut], every[cut:], offsets[-1] if test else every[:0])


def files_of(form: Cifar, path: Path) -> tuple[list[Path], list[Path]]:
    """Files of a data set for training and for tests, from its folder or from one file. Raises UnreadableFile and
    BadMagic."""
    names = [*form.train, form.test]
    if path.name.endswith((".tar.gz", ".tgz", ".tar")):
        raise BadMagic(path, f"an archive; unpack it first. {_expected(form)}")
    if path.is_file():
        return [path], []
    if not path.is_dir():
        raise UnreadableFile(path, f"neither a folder with {', '.join(names)} nor one such file")
    for name in names:
        if not (path / name).exists():
            if (path / Path(name).stem).exists() or (path / "meta").exists():
                raise BadMagic(path, f"has pickles, which are never unpickled, instead of {name}. {_expected(form)}")
            raise UnreadableFile(path / name, f"missing; the folder must have {', '.join(names)}")
    return [path / name for name in form.train], [path / form.test]


def _expected(form: Cifar) -> str:
    return f"Expected are the files of the binary archive {form.archive} (md5 {form.md5})"


def checksums(data: str) -> dict[str, str]:
    """SHA-256 of each file of a run's images, by its name; empty for synthetic ones."""
    form, path = form_of(data)
    if not isinstance(form, Cifar):
        return {}
    train, test = files_of(form, Path(path))
    return {each.name: scan(each, form) for each in (*train, *test)}


def scan(path: Path, form: Cifar) -> str:
    """SHA-256 of a file, once every label in it is known to be a class. A file that has not changed is read once.

    Raises UnreadableFile, BadMagic, CountMismatch, LabelOutOfRange.
    """
    try:
        about = path.stat()
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
    return _scan(path, form, about.st_size, about.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _scan(path: Path, form: Cifar, _size: int, _modified: int) -> str:
    digest, record, label, first = hashlib.sha256(), form.record_bytes, form.labels - 1, 0
    with open_regular(path) as (stream, size):
        begin = stream.read(2)
        if begin[:1] == PICKLE or begin == GZIP:
            kind = "a pickle, which is never unpickled" if begin[:1] == PICKLE else "compressed"
            raise BadMagic(path, f"is {kind}. {_expected(form)}")
        if size % record:
            raise CountMismatch(path, f"{size} bytes are no multiple of a record's {record}: {size % record} remain")
        if not size:
            raise NotEnoughImages(path, "0 bytes; expected one record or more")
        stream.seek(0)
        while part := stream.read(READ_RECORDS * record):
            digest.update(part)
            found = np.frombuffer(part, np.uint8)[label::record]
            if int(found.max()) >= form.classes:
                at = int(np.argmax(found >= form.classes))
                raise LabelOutOfRange(
                    path, f"label {int(found[at])} in record {first + at}; labels are 0 to {form.classes - 1}"
                )
            first += len(found)
    return digest.hexdigest()


def synthetic_images(batch: int, side: int, classes: int, val_samples: int, seed: int) -> Images:
    """Draw images of classes that can be learnt: each is its class's template plus noise. The seed determines every
    byte.

    There are SYNTHETIC_IMAGES, as far as they fit into SYNTHETIC_BYTES, but enough for one batch; and those for
    validation.
    """
    record = 1 + CHANNELS * side * side
    count = max(batch, min(SYNTHETIC_IMAGES, SYNTHETIC_BYTES // record))
    raw = np.random.PCG64([seed, SYNTHETIC_STREAM])
    coarse = _bytes(raw, classes * CHANNELS * TEMPLATE_SIDE**2).reshape(classes, CHANNELS, TEMPLATE_SIDE, TEMPLATE_SIDE)
    at = np.arange(side) * TEMPLATE_SIDE // side
    templates = (coarse % (256 - NOISE))[:, :, at[:, None], at].reshape(classes, -1)
    samples = np.empty((count + val_samples, record), np.uint8)
    for first in range(0, len(samples), READ_RECORDS):
        some = samples[first : first + READ_RECORDS]
        some[:, 0] = raw.random_raw(len(some)) % np.uint64(classes)
        some[:, 1:] = _bytes(raw, some[:, 1:].size).reshape(some[:, 1:].shape) % NOISE
        some[:, 1:] += templates[some[:, 0]]
    offsets = record * np.arange(len(samples), dtype=np.int64)
    samples.flags.writeable = False
    return Images(samples.reshape(-1), offsets[:count], offsets[count:], offsets[:0])


def _bytes(raw: np.random.PCG64, count: int) -> Bytes:
    """Bytes of the raw stream, which no release of NumPy changes."""
    return raw.random_raw(-(-count // 8)).astype("<u8").view(np.uint8)[:count]


def evaluated(data: str, found: Images, split: str) -> Offsets:
    """The images that evaluations read. Raises NotEnoughImages for none."""
    if not len(found.of(split)):
        raise NotEnoughImages(data, f"0 images for {PURPOSES[split]}; evaluations need 1 or more")
    return found.of(split)


def order(offsets: Offsets, images: int, shuffle: str, seed: int) -> Offsets:
    """The images in the order in which batches take them: epoch after epoch, for as many `images` as all steps use.

    "epoch": each epoch has its own permutation, the same on every machine; "none": the order of the files. After the
    last entry the first one follows; there are at most MOST_ORDERED entries, if one epoch has no more.
    """
    if shuffle == "none":
        return offsets
    epochs = min(-(-images // len(offsets)), max(1, MOST_ORDERED // len(offsets)))
    return np.concatenate([offsets[permutation(len(offsets), seed, epoch)] for epoch in range(epochs)])


def permutation(count: int, seed: int, epoch: int) -> NDArray[np.intp]:
    """A permutation of `count` numbers: they are sorted by raw random ones, which no release of NumPy changes."""
    return np.argsort(np.random.PCG64([seed, ORDER_STREAM, epoch]).random_raw(count), kind="stable")

