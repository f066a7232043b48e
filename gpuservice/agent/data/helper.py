# SPDX-License-Identifier: Apache-2.0
"""The short-lived process that touches a task's data with the task's own user id.

It fetches inputs, delivers outputs, and hands open files of outputs and checkpoints to the agent,
which alone holds the node's secret and so does the uploading. Messages are JSON, one a packet;
an open file travels beside its message. Every directory it starts from was opened before the
user id was given up, so what counts are the rights below it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from gpuservice.agent import isolation, task_files
from gpuservice.agent.data import beneath
from gpuservice.domain.kept import MAX_PATH, unfit

if TYPE_CHECKING:
    from gpuservice.agent.data import addresses

_CHUNK = 1 << 20
#: Seconds between two looks whether the agent is still there.
_LOOK_S = 0.5
_TOO_DEEP = f"nested deeper than {beneath.MAX_DEPTH} folders"


class DataFault(Exception):
    """Data that cannot be had; carries one of the contract's failure classes."""

    def __init__(self, kind: str, evidence: str) -> None:
        super().__init__(evidence)
        self.kind = kind


@dataclass(slots=True)
class _Work:
    """What a helper works with: its orders, open directories and the line to the agent."""

    task: Mapping[str, Any]
    rules: Mapping[str, Any]
    #: Certificates (PEM) trusted besides the machine's, read before the user id was given up.
    authorities: str | None
    work: int
    roots: Mapping[str, int]
    line: socket.socket

    def say(self, message: Mapping[str, Any], *handles: int) -> None:
        socket.send_fds(self.line, [json.dumps(message).encode()], list(handles))


def run(request: Mapping[str, Any], line: socket.socket) -> None:
    """Do what the request asks (``fetch``, ``outputs``, ``checkpoint``); tell how it went."""
    try:
        directory = str(request["directory"])
        order = task_files.read_json(f"{directory}/{task_files.ORDER}")
        rules = order["data"]
        if request["kind"] != "checkpoint":
            from gpuservice.agent.data import addresses  # noqa: F401 - while it can be read
        roots = {
            root: os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            for root in rules["file_roots"]
            if os.path.isdir(root)
        }
        work = os.open(f"{directory}/box/work", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        held = _Work(order["task"], rules, _authorities(rules), work, roots, line)
        uid = order["launch"]["uid"]
        if uid is not None:
            isolation.become(uid)
            isolation.gain_no_rights()
        os.umask(0o022)
        _end_with(line)
        {"fetch": _fetch_all, "outputs": _outputs, "checkpoint": _checkpoint}[request["kind"]](held)
        held.say({"done": True})
    except DataFault as fault:
        _fail(line, fault.kind, str(fault))
    except Exception as error:
        _fail(line, "platform", f"{type(error).__name__}: {error}")


def _authorities(rules: Mapping[str, Any]) -> str | None:
    path = rules.get("ca_file")
    if not path:
        return None
    with open(path, encoding="ascii") as file:
        return file.read()


def _end_with(line: socket.socket) -> None:
    """End when the agent lets go of the line, whatever slow server is being waited for."""
    hung_up = select.poll()
    hung_up.register(line, 0)

    def look(*_: object) -> None:
        if hung_up.poll(0):
            os._exit(0)

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)


def _fail(line: socket.socket, kind: str, evidence: str) -> None:
    line.send(json.dumps({"failure": {"class": kind, "evidence": evidence[:2000]}}).encode())


def _fetch_all(held: _Work) -> None:
    for entry in held.task["spec"].get("inputs") or ():
        source, path = str(entry["source"]), str(entry.get("path") or "")
        try:
            target = beneath.parts(path)
            if path.endswith("/") or not target:
                target.append(beneath.parts(unquote(urlsplit(source).path).strip("/"))[-1])
            if urlsplit(source).scheme == "file":
                _copy_in(held, source, target)
            else:
                _download(held, source, target)
        except PermissionError as error:
            raise DataFault("permission", f"input {source}: {_reason(error)}") from error
        except (OSError, ValueError, IndexError) as error:
            raise DataFault("data", f"input {source}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _below_root(held: _Work, url: str) -> tuple[int, list[str]]:
    """The root a file URL lies below, and the parts of the way from it."""
    split = urlsplit(url)
    path = os.path.normpath(unquote(split.path))
    if split.netloc not in ("", "localhost") or not path.startswith("/"):
        raise DataFault("data", f"{url}: a file URL names an absolute path of this node")
    for root, handle in held.roots.items():
        if path == root or path.startswith(root.rstrip("/") + "/"):
            return handle, beneath.parts(path[len(root.rstrip("/")) :].lstrip("/"))
    raise DataFault("permission", f"{url}: not below a directory opened for file URLs")


def _copy_in(held: _Work, source: str, target: list[str]) -> None:
    root, names = _below_root(held, source)
    left = int(held.rules["max_bytes"])
    for found, kind in beneath.walk(root, names):
        if kind == "file":
            reading = beneath.open_regular(root, found)
            writing = beneath.create(held.work, [*target, *found[len(names) :]])
            left = _pour(iter(lambda: os.read(reading, _CHUNK), b""), writing, left)  # noqa: B023
            os.close(reading)
        elif found == names:
            raise DataFault("data", f"{source}: not a regular file")


def _download(held: _Work, source: str, target: list[str]) -> None:
    from gpuservice.agent.data import addresses

    answer = addresses.get(source, _address_rules(held), float(held.rules["timeout_s"]))
    writing = beneath.create(held.work, target)
    _pour(iter(lambda: answer.read(_CHUNK), b""), writing, int(held.rules["max_bytes"]))


def _address_rules(held: _Work) -> addresses.AddressRules:
    from gpuservice.agent.data import addresses

    return addresses.AddressRules(
        tuple(held.rules["denied_networks"]),
        bool(held.rules["allow_loopback_http"]),
        held.authorities,
    )


def _pour(pieces: Iterator[bytes], writing: int, left: int) -> int:
    """Write all pieces and close; returns what is left of the allowed bytes."""
    try:
        for piece in pieces:
            left -= len(piece)
            if left < 0:
                raise DataFault("data", "larger than inputs may be")
            view = memoryview(piece)
            while view:
                view = view[os.write(writing, view) :]
    finally:
        os.close(writing)
    return left


def _outputs(held: _Work) -> None:
    """Deliver outputs that have a target, hand the files of the others to the agent."""
    for entry in held.task["spec"].get("outputs") or ():
        target = entry.get("target")
        try:
            names = beneath.parts(str(entry["path"]))
            for found, kind in beneath.walk(held.work, names):
                if kind == "other":
                    held.say({"skipped": _shown(found), "why": "not a regular file"})
                elif kind == "deep":
                    _lose(held, _shown(found), DataFault("data", _TOO_DEEP))
                elif target:
                    _deliver(held, str(target), found, names)
                else:
                    _hand_over(held, found)
        except FileNotFoundError:
            held.say({"skipped": str(entry["path"]), "why": "not there"})
        except (OSError, ValueError, DataFault) as error:
            _lose(held, str(entry["path"]), error)


def _lose(held: _Work, path: str, error: Exception) -> None:
    """Say that something that is there could not be delivered, which the task must fail for."""
    kind = "permission" if isinstance(error, PermissionError) else "data"
    if isinstance(error, DataFault):
        kind = error.kind
    held.say({"lost": path, "class": kind, "why": _reason(error)[:1000]})


def _shown(names: list[str]) -> str:
    """A path as it is told; messages have no room for the longest."""
    path = "/".join(names)
    return path if len(path) <= MAX_PATH else f"{path[:MAX_PATH]}..."


def _hand_over(held: _Work, names: list[str]) -> None:
    """Hand an open file to the agent, or say why it could not be kept."""
    fault = unfit("/".join(names))
    if fault is not None:
        _lose(held, _shown(names), DataFault("data", fault))
        return
    try:
        handle = beneath.open_regular(held.work, names)
    except (FileNotFoundError, beneath.UnsafePath) as error:
        held.say({"skipped": "/".join(names), "why": _reason(error)})
        return
    except OSError as error:
        _lose(held, "/".join(names), error)
        return
    held.say({"file": "/".join(names), "size": os.fstat(handle).st_size}, handle)
    os.close(handle)


def _deliver(held: _Work, target: str, found: list[str], names: list[str]) -> None:
    """Copy or PUT one file; below a target that ends in a slash its own way is kept."""
    for key in ("job_id", "attempt", "index", "rank"):
        target = target.replace("{" + key + "}", str(held.task.get(key, "")))
    inner = found[len(names) :] or ([names[-1]] if target.endswith("/") else [])
    by_url = "/".join(quote(os.fsencode(name)) for name in inner)
    reading = beneath.open_regular(held.work, found)
    size = os.fstat(reading).st_size
    pieces = iter(lambda: os.read(reading, _CHUNK), b"")
    try:
        if urlsplit(target).scheme == "file":
            root, below = _below_root(held, target)
            _pour(pieces, _create_shared(root, [*below, *inner], target), size)
            return
        from gpuservice.agent.data import addresses

        url = target if not inner else f"{target.rstrip('/')}/{by_url}"
        addresses.put(url, pieces, size, _address_rules(held), float(held.rules["timeout_s"]))
    finally:
        os.close(reading)


def _create_shared(root: int, names: list[str], target: str) -> int:
    """A file below a root that many tasks, each another user, deliver to.

    All may add to the folders made on the way; nobody may replace what another task delivered.
    """
    before = os.umask(0)
    try:
        os.close(beneath.make_directory(root, names[:-1], 0o1777))
    finally:
        os.umask(before)
    try:
        return beneath.create(root, names)
    except PermissionError as error:
        raise DataFault(
            "permission",
            f"{target}: {_reason(error)} (a file that another task delivered is not replaced; "
            "{job_id} and {attempt} in a target keep tasks apart)",
        ) from error


def _checkpoint(held: _Work) -> None:
    """List the checkpoint's files with their sizes, then hand them over.

    Half-written ones (``*.tmp``) are left out; so are, with a word, those that cannot be kept.
    """
    names = beneath.parts(str(held.task["spec"]["checkpoint"]["path"]))
    listed: list[list[str]] = []
    try:
        for found, kind in beneath.walk(held.work, names):
            if kind == "deep":
                _lose(held, _shown(found), DataFault("data", _TOO_DEEP))
            elif kind == "file" and not found[-1].endswith(".tmp"):
                path = "/".join(found)
                fault = unfit(path)
                if fault is not None:
                    _lose(held, _shown(found), DataFault("data", fault))
                    continue
                with contextlib.suppress(FileNotFoundError):
                    held.say({"listed": path, "size": beneath.size(held.work, found)})
                    listed.append(found)
    except FileNotFoundError:
        return
    held.say({"all_listed": True})
    for found in listed:
        _hand_over(held, found)
