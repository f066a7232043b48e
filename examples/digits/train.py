#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a small network on hand-written digits, in parallel over the tasks of one job.

Needs Python and numpy, nothing of gpuservice: all it knows comes from the environment that
gpuservice gives each task.

    RANK, WORLD_SIZE                 which of how many tasks this is
    MASTER_ADDR, MASTER_PORT         where rank 0 listens
    GPUSERVICE_GANG_SECRET           what the tasks of one attempt prove to each other
    GPUSERVICE_CHECKPOINT_DIR        what is kept here survives the loss of the node
    GPUSERVICE_RESUMED               "1" in an attempt that got an earlier one's checkpoint back

Each rank computes the gradient of its part of every batch; rank 0 adds them up and sends the sum
back, so all ranks hold the same network at any time. Without those variables it trains alone.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import hmac
import json
import os
import secrets
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

Arrays = dict[str, np.ndarray]

SEED = 20
CLASSES = 10
HIDDEN = 64
BATCH = 64
RATE = 0.1
MOMENTUM = 0.9
TEST_ROWS = 360  # a fifth of the 1,797 images is held out, the same ones in every run
CONNECT_S = 60.0  # how long a rank waits for its peers to come up
LOST_PEER_S = 120.0  # how long a rank waits to be stopped once a peer has gone
EXIT_LOST_PEER = 75  # EX_TEMPFAIL of sysexits.h: nothing is wrong with this program


# --- the gang ---------------------------------------------------------------------------------


class Gang:
    """A star of TCP connections around rank 0 that adds up vectors."""

    def __init__(self, rank: int, peers: list[socket.socket]) -> None:
        self.rank = rank
        self._peers = peers  # of rank 0: all others; of the others: rank 0

    def add_up(self, vector: np.ndarray) -> np.ndarray:
        """Return the sum of every rank's vector, the same bytes on every rank."""
        if not self._peers:
            return vector
        if self.rank != 0:
            _send(self._peers[0], vector)
            return _receive(self._peers[0], vector.size)
        total = vector.copy()
        for peer in self._peers:  # in the order of ranks: floating point sums depend on it
            total += _receive(peer, vector.size)
        for peer in self._peers:
            _send(peer, total)
        return total


def form_gang(rank: int, size: int, patience_s: float) -> Gang:
    """Connect the ranks of this attempt; every pair proves that it knows the gang's secret."""
    if size == 1:
        return Gang(rank, [])
    secret = os.environ["GPUSERVICE_GANG_SECRET"].encode()
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank == 0:
        peers = _accept(address, size, secret)
    else:
        peers = [_connect(address, rank, secret)]
    for peer in peers:
        peer.settimeout(patience_s)
    return Gang(rank, peers)


def _accept(address: tuple[str, int], size: int, secret: bytes) -> list[socket.socket]:
    """Wait for every other rank; whoever cannot prove the secret is turned away."""
    found: dict[int, socket.socket] = {}
    with socket.create_server(address) as listener:
        listener.settimeout(CONNECT_S)
        while len(found) < size - 1:
            peer, origin = listener.accept()
            peer.settimeout(5.0)
            try:
                found[_admit(peer, size, secret)] = peer
            except (ValueError, OSError) as error:
                print(f"turned away {origin[0]}: {error}", flush=True)
                peer.close()
    return [found[rank] for rank in sorted(found)]


def _admit(peer: socket.socket, size: int, secret: bytes) -> int:
    """Challenge a caller, answer his challenge, and return his rank."""
    ours = secrets.token_bytes(32)
    peer.sendall(ours)
    rank = struct.unpack("!I", _exactly(peer, 4))[0]
    theirs, proof = _exactly(peer, 32), _exactly(peer, 32)
    if not 0 < rank < size or not hmac.compare_digest(proof, _proof(secret, rank, ours)):
        raise ValueError("does not know the gang's secret")
    peer.sendall(_proof(secret, 0, theirs))
    return int(rank)


def _connect(address: tuple[str, int], rank: int, secret: bytes) -> socket.socket:
    """Reach rank 0, which may come up later than we do."""
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            peer = socket.create_connection(address, timeout=5.0)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    ours, theirs = secrets.token_bytes(32), _exactly(peer, 32)
    peer.sendall(struct.pack("!I", rank) + ours + _proof(secret, rank, theirs))
    if not hmac.compare_digest(_exactly(peer, 32), _proof(secret, 0, ours)):
        raise ConnectionError("whoever listens there is not rank 0 of this gang")
    return peer


def _proof(secret: bytes, rank: int, challenge: bytes) -> bytes:
    return hmac.digest(secret, struct.pack("!I", rank) + challenge, hashlib.sha256)


def _send(peer: socket.socket, vector: np.ndarray) -> None:
    peer.sendall(vector.astype("<f8").tobytes())


def _receive(peer: socket.socket, size: int) -> np.ndarray:
    return np.frombuffer(_exactly(peer, 8 * size), dtype="<f8").copy()


def _exactly(peer: socket.socket, size: int) -> bytes:
    """Read ``size`` bytes; an early end is a lost peer."""
    pieces = bytearray()
    while len(pieces) < size:
        piece = peer.recv(size - len(pieces))
        if not piece:
            raise ConnectionError("the other side has gone")
        pieces += piece
    return bytes(pieces)


# --- data and network -------------------------------------------------------------------------


def load(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return training images and labels, then test images and labels; pixels are 0..1."""
    with gzip.open(path, "rt", encoding="ascii") as stream:
        table = np.loadtxt(stream, delimiter=",")
    order = np.random.default_rng(SEED).permutation(len(table))
    images, labels = table[order, :-1] / 16.0, table[order, -1].astype(int)
    split = len(table) - TEST_ROWS
    return images[:split], labels[:split], images[split:], labels[split:]


def new_network(pixels: int) -> Arrays:
    """Return the first weights, the same on every rank."""
    random = np.random.default_rng(SEED)
    return {
        "w1": random.normal(0.0, np.sqrt(2.0 / pixels), (pixels, HIDDEN)),
        "b1": np.zeros(HIDDEN),
        "w2": random.normal(0.0, np.sqrt(1.0 / HIDDEN), (HIDDEN, CLASSES)),
        "b2": np.zeros(CLASSES),
    }


def forward(network: Arrays, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the hidden layer and the probability of each class."""
    hidden = np.maximum(images @ network["w1"] + network["b1"], 0.0)
    scores = hidden @ network["w2"] + network["b2"]
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, odds / odds.sum(axis=1, keepdims=True)


def gradient(network: Arrays, images: np.ndarray, labels: np.ndarray) -> tuple[Arrays, float]:
    """Return the sum (not the mean) of gradient and loss over these images."""
    hidden, odds = forward(network, images)
    rows = np.arange(len(labels))
    loss = float(-np.log(np.maximum(odds[rows, labels], 1e-12)).sum())
    odds[rows, labels] -= 1.0
    back = (odds @ network["w2"].T) * (hidden > 0.0)
    return {
        "w1": images.T @ back,
        "b1": back.sum(axis=0),
        "w2": hidden.T @ odds,
        "b2": odds.sum(axis=0),
    }, loss


def accuracy(network: Arrays, images: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of images whose likeliest class is the right one."""
    return float((forward(network, images)[1].argmax(axis=1) == labels).mean())


def flatten(arrays: Arrays) -> np.ndarray:
    """Lay the arrays end to end."""
    return np.concatenate([part.ravel() for part in arrays.values()])


def unflatten(vector: np.ndarray, like: Arrays) -> Arrays:
    """Undo :func:`flatten`."""
    ends = np.cumsum([part.size for part in like.values()])[:-1]
    parts = np.split(vector, ends)
    return {name: part.reshape(like[name].shape) for name, part in zip(like, parts, strict=True)}


# --- training ---------------------------------------------------------------------------------


class Trainer:
    """The network, its momentum, and how many epochs they have seen."""

    def __init__(self, network: Arrays, gang: Gang, size: int) -> None:
        self.network = network
        self.momentum = {name: np.zeros_like(part) for name, part in network.items()}
        self.epoch = 0
        self._gang = gang
        self._size = size

    def restore(self, checkpoint: Path | None) -> None:
        """Take rank 0's checkpoint, where there is one, on every rank."""
        if self._gang.rank == 0 and checkpoint is not None and checkpoint.exists():
            with np.load(checkpoint) as kept:
                self.epoch = int(kept["epoch"])
                self.network = {name: kept[f"network_{name}"] for name in self.network}
                self.momentum = {name: kept[f"momentum_{name}"] for name in self.momentum}
        state = np.concatenate([[self.epoch], flatten(self.network), flatten(self.momentum)])
        if self._gang.rank != 0:
            state[:] = 0.0  # the sum is then what rank 0 has
        state = self._gang.add_up(state)
        half = (state.size - 1) // 2
        self.epoch = int(state[0])
        self.network = unflatten(state[1 : 1 + half], self.network)
        self.momentum = unflatten(state[1 + half :], self.momentum)

    def keep(self, checkpoint: Path | None) -> None:
        """Write the checkpoint so that a reader sees the old one or the new one, whole."""
        if self._gang.rank != 0 or checkpoint is None:
            return
        fresh = checkpoint.with_name("fresh.tmp")
        with fresh.open("wb") as stream:
            np.savez(
                stream,
                epoch=self.epoch,
                **{f"network_{name}": part for name, part in self.network.items()},
                **{f"momentum_{name}": part for name, part in self.momentum.items()},
            )
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(fresh, checkpoint)

    def run_epoch(self, images: np.ndarray, labels: np.ndarray) -> float:
        """Go once through the images and return the mean loss."""
        order = np.random.default_rng([SEED, self.epoch]).permutation(len(labels))
        losses = 0.0
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            mine = batch[self._gang.rank :: self._size]
            slopes, loss = gradient(self.network, images[mine], labels[mine])
            total = self._gang.add_up(np.concatenate([flatten(slopes), [loss]]))
            losses += float(total[-1])
            for name, slope in unflatten(total[:-1] / len(batch), slopes).items():
                self.momentum[name] = MOMENTUM * self.momentum[name] - RATE * slope
                self.network[name] = self.network[name] + self.momentum[name]
        self.epoch += 1
        return losses / len(order)


def write_results(folder: Path, trainer: Trainer, metrics: dict[str, float], rank: int) -> None:
    """Leave the metrics of this rank, and the model itself on rank 0."""
    folder.mkdir(exist_ok=True)
    (folder / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n", encoding="ascii")
    if rank == 0:
        with (folder / "model.npz").open("wb") as stream:
            np.savez_compressed(stream, **trainer.network)


def train(options: argparse.Namespace, say: Callable[[str], None]) -> None:
    """Form the gang, train to the last epoch, write the results."""
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    folder = os.environ.get("GPUSERVICE_CHECKPOINT_DIR")
    checkpoint = Path(folder) / "digits.npz" if folder else None
    if checkpoint is not None:
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
    images, labels, test_images, test_labels = load(options.data)
    gang = form_gang(rank, size, patience_s=30.0 + 2 * options.epoch_seconds)
    trainer = Trainer(new_network(images.shape[1]), gang, size)
    trainer.restore(checkpoint if os.environ.get("GPUSERVICE_RESUMED") == "1" else None)
    first = trainer.epoch
    say(f"resumed after epoch {first}" if first else f"started with {size} tasks")
    while trainer.epoch < options.epochs:
        began = time.monotonic()
        loss = trainer.run_epoch(images, labels)
        trainer.keep(checkpoint)
        score = accuracy(trainer.network, test_images, test_labels)
        say(f"epoch {trainer.epoch}/{options.epochs} loss {loss:.4f} test accuracy {score:.4f}")
        time.sleep(max(0.0, options.epoch_seconds - (time.monotonic() - began)))
    score = accuracy(trainer.network, test_images, test_labels)
    metrics = {"test_accuracy": score, "epochs": trainer.epoch, "resumed_after": first}
    write_results(options.output, trainer, metrics, rank)
    say(f"finished with test accuracy {score:.4f}")


def main() -> int:
    """Parse the command line, train, and tell a lost peer from a fault of one's own."""
    parser = argparse.ArgumentParser(description="Train a classifier of hand-written digits.")
    parser.add_argument("--data", type=Path, default=Path("digits.csv.gz"))
    parser.add_argument("--output", type=Path, default=Path("out"))
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--epoch-seconds", type=float, default=0.0, help="shortest epoch")
    options = parser.parse_args()
    rank = os.environ.get("RANK", "0")

    def say(text: str) -> None:
        print(f"[rank {rank}] {text}", flush=True)

    try:
        train(options, say)
    except (ConnectionError, TimeoutError) as error:
        # Most likely a peer's node was lost. The service notices, stops this rank and starts the
        # gang again; to fail now would make it look like a fault of this program.
        say(f"lost a peer ({error}); waiting to be stopped")
        time.sleep(LOST_PEER_S)
        return EXIT_LOST_PEER
    return 0


if __name__ == "__main__":
    sys.exit(main())
