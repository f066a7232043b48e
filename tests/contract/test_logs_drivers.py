# SPDX-License-Identifier: Apache-2.0
"""What every log store does."""

from __future__ import annotations

import threading

import pytest
from oslo_config import cfg

from gpuservice.domain.errors import LogGap
from gpuservice.domain.ports import LogStore
from gpuservice.drivers import loader

KEY = "job/attempt/task/stdout"


@pytest.fixture(params=["file"])
def store(request: pytest.FixtureRequest, conf: cfg.ConfigOpts) -> LogStore:
    found: LogStore = loader.load("logs", request.param, conf)
    return found


def test_pieces_become_one_stream(store: LogStore) -> None:
    assert store.append(KEY, 0, b"hello ", 100) == (6, False)
    assert store.append(KEY, 6, b"world", 100) == (11, False)
    piece = store.read(KEY, 0, 100)
    assert (piece.data, piece.offset, piece.next_offset) == (b"hello world", 0, 11)
    assert not piece.end


def test_what_came_before_is_not_written_twice(store: LogStore) -> None:
    store.append(KEY, 0, b"abcdef", 100)
    assert store.append(KEY, 0, b"abcdef", 100) == (6, False)
    assert store.append(KEY, 3, b"defghi", 100) == (9, False)
    assert store.append(KEY, 2, b"c", 100) == (9, False)
    assert store.read(KEY, 0, 100).data == b"abcdefghi"


def test_a_gap_is_refused_with_the_offset_wanted(store: LogStore) -> None:
    store.append(KEY, 0, b"abc", 100)
    with pytest.raises(LogGap) as caught:
        store.append(KEY, 4, b"e", 100)
    assert caught.value.meta["offset"] == 3
    assert store.read(KEY, 0, 100).data == b"abc"


def test_nothing_goes_beyond_the_cap(store: LogStore) -> None:
    assert store.append(KEY, 0, b"x" * 8, 10) == (8, False)
    assert store.append(KEY, 8, b"y" * 8, 10) == (10, True)
    assert store.append(KEY, 16, b"z", 10) == (10, True)
    assert store.read(KEY, 0, 100).data == b"x" * 8 + b"y" * 2


def test_reads_by_offset_from_either_end(store: LogStore) -> None:
    store.append(KEY, 0, b"0123456789", 100)
    assert store.read(KEY, 4, 3).data == b"456"
    tail = store.read(KEY, -3, 100)
    assert (tail.data, tail.offset) == (b"789", 7)
    assert store.read(KEY, -99, 2).data == b"01"
    beyond = store.read(KEY, 50, 10)
    assert (beyond.data, beyond.next_offset) == (b"", 50)
    assert store.read("job/attempt/task/stderr", 0, 10).data == b""


def test_the_end_is_told_with_the_last_byte(store: LogStore) -> None:
    store.append(KEY, 0, b"0123456789", 100)
    store.close(KEY)
    store.close(KEY)
    assert not store.read(KEY, 0, 5).end
    assert store.read(KEY, 5, 5).end
    store.close("job/attempt/task/stderr")
    assert store.read("job/attempt/task/stderr", 0, 5).end


def test_a_prefix_goes_with_everything_below(store: LogStore) -> None:
    store.append(KEY, 0, b"a", 100)
    store.append("job2/a/t/stdout", 0, b"b", 100)
    store.delete("job")
    store.delete("job")
    assert store.read(KEY, 0, 9).data == b"" and store.read("job2/a/t/stdout", 0, 9).data == b"b"


def test_writers_of_the_same_stream_do_not_mix(store: LogStore) -> None:
    """Ten writers ship the same bytes in pieces of their own size; each byte is there once."""
    whole = bytes(range(256)) * 40

    def ship(size: int) -> None:
        at = 0
        while at < len(whole):
            at = max(at, store.append(KEY, at, whole[at : at + size], 1 << 20)[0])

    threads = [threading.Thread(target=ship, args=(100 + 37 * n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.read(KEY, 0, 1 << 20).data == whole


@pytest.mark.parametrize("key", ["../x", "a/../../x", "a//b", "/", "a/\0"])
def test_keys_stay_below_the_root(store: LogStore, key: str) -> None:
    with pytest.raises(ValueError):
        store.append(key, 0, b"x", 10)
