from __future__ import annotations

from pathlib import Path

import pytest

from gpt2core.spec.config import TrainConfig
from taskloom.worker.roots import RefusedName, find_file, find_files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "a.bin").write_bytes(b"a")
    (root / "sub/b.bin").write_bytes(b"b")
    (tmp_path / "outside.bin").write_bytes(b"no")
    (root / "escape.bin").symlink_to(tmp_path / "outside.bin")
    (root / "inside.bin").symlink_to(root / "a.bin")
    (root / "loop.bin").symlink_to(root / "loop.bin")
    (root / "up").symlink_to(tmp_path)
    return root


@pytest.mark.parametrize(("name", "target"), [("a.bin", "a.bin"), ("sub/b.bin", "sub/b.bin"), ("inside.bin", "a.bin")])
def test_names_below_the_root_are_found(root: Path, name: str, target: str) -> None:
    assert find_file("data", name, root) == root / target


@pytest.mark.parametrize(
    "name",
    ["../outside.bin", "sub/../../outside.bin", "sub/../a.bin", "escape.bin", "up/outside.bin", "loop.bin", "sub",
     ".", "", "missing.bin", "a.bin\0", "a" * 5000],
)  # fmt: skip
def test_everything_else_is_refused(root: Path, name: str) -> None:
    with pytest.raises(RefusedName) as raised:
        find_file("data", name, root)
    assert raised.value.fields()["field"] == "data"


def test_an_absolute_path_is_refused_even_to_a_file_below_the_root(root: Path) -> None:
    with pytest.raises(RefusedName):
        find_file("data", str(root / "a.bin"), root)


def test_without_a_root_only_built_in_data_is_allowed(root: Path) -> None:
    assert find_files(TrainConfig(data="stdlib"), None, None) == {}
    assert find_files(TrainConfig(data="synthetic"), None, None) == {}
    with pytest.raises(RefusedName, match="data-root"):
        find_files(TrainConfig(data="a.bin"), None, root)
    with pytest.raises(RefusedName, match="checkpoint-root"):
        find_files(TrainConfig(checkpoint="a.bin"), root, None)


def test_names_become_paths_of_their_own_roots(root: Path) -> None:
    found = find_files(TrainConfig(data="sub/b.bin", checkpoint="a.bin"), root, root)
    assert found == {"data": str(root / "sub/b.bin"), "checkpoint": str(root / "a.bin")}


@pytest.fixture
def weights(root: Path) -> Path:
    """A folder as huggingface_hub caches it: links to files elsewhere below the root."""
    snapshot = root / "gpt2"
    (root / "blobs").mkdir()
    snapshot.mkdir()
    for name in ("config.json", "model.safetensors.index.json", "model-00001-of-00001.safetensors"):
        (root / "blobs" / f"sha of {name}").write_bytes(b"{}")
        (snapshot / name).symlink_to(root / "blobs" / f"sha of {name}")
    return snapshot


def test_a_checkpoint_may_be_a_folder(root: Path, weights: Path) -> None:
    """Its files keep their names, by which the trainer finds their neighbours."""
    assert weights == root / "gpt2"
    for name in ("gpt2", "gpt2/model.safetensors.index.json", "gpt2/model-00001-of-00001.safetensors"):
        assert find_file("checkpoint", name, root, folders=True) == root / name
    with pytest.raises(RefusedName, match="a regular file"):
        find_file("data", "gpt2", root)
    for name in (".", ""):
        with pytest.raises(RefusedName):
            find_file("checkpoint", name, root, folders=True)


@pytest.mark.parametrize(
    ("name", "escapes"),
    [("gpt2", "model-00001-of-00001.safetensors"), ("gpt2", "config.json"), ("gpt2", "more.safetensors"),
     ("gpt2/model.safetensors.index.json", "model-00001-of-00001.safetensors"),
     ("gpt2/model-00001-of-00001.safetensors", "config.json")],
)  # fmt: skip
def test_what_is_read_with_a_checkpoint_may_not_leave_the_root(
    root: Path, weights: Path, name: str, escapes: str
) -> None:
    (weights / escapes).unlink(missing_ok=True)
    (weights / escapes).symlink_to(root.parent / "outside.bin")
    with pytest.raises(RefusedName, match=f"{name} \\({escapes}\\).*below the checkpoint root"):
        find_file("checkpoint", name, root, folders=True)


@pytest.mark.parametrize("field", ["save", "trace"])
def test_a_request_writes_no_file(root: Path, field: str) -> None:
    with pytest.raises(RefusedName) as raised:
        find_files(TrainConfig.from_dict({field: "out.bin"}), root, root)
    assert raised.value.field == field


def test_images_keep_their_form_and_may_be_a_folder_or_a_file(root: Path) -> None:
    def found(name: str) -> dict[str, str]:
        return find_files(TrainConfig.from_dict({"model": "resnet14-cifar", "data": f"cifar10:{name}"}), root, None)

    assert found("sub") == {"data": f"cifar10:{root / 'sub'}"}
    assert found("sub/b.bin") == {"data": f"cifar10:{root / 'sub/b.bin'}"}
    (root / "sub/test_batch.bin").symlink_to(root.parent / "outside.bin")
    for name in ("sub", "escape.bin", "../outside.bin", "missing"):
        with pytest.raises(RefusedName):
            found(name)
