# SPDX-License-Identifier: Apache-2.0
"""What every object store does."""

from __future__ import annotations

import hashlib
from io import BytesIO
from pathlib import Path

import pytest
from oslo_config import cfg

from gpuservice.domain.errors import Conflict, NotFound, TooLarge
from gpuservice.domain.ports import ObjectStore
from gpuservice.drivers import loader


@pytest.fixture(params=["file"])
def store(request: pytest.FixtureRequest, conf: cfg.ConfigOpts) -> ObjectStore:
    found: ObjectStore = loader.load("objects", request.param, conf)
    return found


def content(store: ObjectStore, key: str) -> bytes:
    with store.open(key) as stream:
        return stream.read()


def test_what_is_put_is_there_with_its_digest(store: ObjectStore) -> None:
    data = bytes(range(256)) * 9000  # more than one piece
    kept = store.put("job/1/out.bin", BytesIO(data), 1 << 30)
    assert (kept.size, kept.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert content(store, "job/1/out.bin") == data


def test_putting_again_replaces(store: ObjectStore) -> None:
    store.put("k", BytesIO(b"old and long"), 100)
    store.put("k", BytesIO(b"new"), 100)
    assert content(store, "k") == b"new"


def test_too_large_leaves_nothing(store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(TooLarge):
        store.put("job/big", BytesIO(b"x" * 11), 10)
    with pytest.raises(NotFound):
        store.open("job/big")
    store.put("job/fits", BytesIO(b"x" * 10), 10)
    assert [one.name for one in (tmp_path / "objects").rglob("*") if one.is_file()] == ["fits"]


def test_a_broken_upload_leaves_the_old_object(store: ObjectStore) -> None:
    class Breaks(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell():
                raise ConnectionError("the node went away")
            return super().read(3)

    store.put("k", BytesIO(b"whole"), 100)
    with pytest.raises(ConnectionError):
        store.put("k", Breaks(b"partial"), 100)
    assert content(store, "k") == b"whole"


def test_absent_is_not_found_and_deleting_it_is_fine(store: ObjectStore) -> None:
    for key in ("nothing", "job"):
        with pytest.raises(NotFound):
            store.open(key)
    store.put("job/1/a", BytesIO(b"a"), 9)
    store.put("job2/a", BytesIO(b"b"), 9)
    store.delete("job")
    store.delete("job")
    with pytest.raises(NotFound):
        store.open("job/1/a")
    assert content(store, "job2/a") == b"b"


def test_what_lies_below_a_prefix(store: ObjectStore) -> None:
    assert (list(store.names("job/sets")), dict(store.sizes("job/sets/1"))) == ([], {})
    for key, size in (("1/a", 3), ("1/b", 0), ("20/a", 1)):
        store.put(f"job/sets/{key}", BytesIO(b"x" * size), 9)
    assert sorted(store.names("job/sets")) == ["1", "20"]
    assert dict(store.sizes("job/sets/1")) == {"a": 3, "b": 0}
    assert (list(store.names("job/sets/1/a")), dict(store.sizes("job/sets/1/a"))) == ([], {})
    assert dict(store.sizes("job/sets")) == {}


def test_what_is_being_put_counts_but_has_no_key(store: ObjectStore) -> None:
    class Looks(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            data = super().read(3)
            seen.append((list(store.names("job")), len(store.sizes("job"))))
            return data

    seen: list[tuple[list[str], int]] = []
    store.put("job/a", Looks(b"abcdef"), 9)
    assert seen[-1] == ([], 1)


def test_deleted_while_it_is_put(store: ObjectStore) -> None:
    class Deletes(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            store.delete("job")
            return super().read(size)

    with pytest.raises(Conflict):
        store.put("job/1/a", Deletes(b"abc"), 9)
    with pytest.raises(NotFound):
        store.open("job/1/a")


@pytest.mark.parametrize("key", ["../x", "a/../../x", "a//b", "", "a/\0b", "a/./b"])
def test_keys_stay_below_the_root(store: ObjectStore, key: str) -> None:
    for call in (
        lambda: store.put(key, BytesIO(b""), 1),
        lambda: store.open(key),
        lambda: store.names(key),
        lambda: store.sizes(key),
        lambda: store.delete(key),
    ):
        with pytest.raises(ValueError):
            call()
