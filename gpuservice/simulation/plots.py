# SPDX-License-Identifier: Apache-2.0
"""Pictures of a replay: utilisation, queue depth, waits by team, GPUs over time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from gpuservice.planner.snapshot import NodeState
from gpuservice.simulation.faults import InputFault
from gpuservice.simulation.replay import Replayed
from gpuservice.simulation.statistics import Spread, wait_of
from gpuservice.simulation.timeline import Row

HOUR = 3600.0
#: More teams than this are too many for the colours and the bars of one picture.
TEAMS = 19
#: More rectangles than this cannot be told apart, and take minutes to draw.
RECTANGLES = 60_000


def must_be_possible() -> None:
    """Say so before the work is done whose pictures could not be drawn.

    :raises InputFault: if matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise InputFault(
            "--plot needs matplotlib, which comes with gpuservice[simulate]: "
            "pip install 'gpuservice[simulate]'"
        ) from None
    matplotlib.use("Agg")


def draw(replayed: Replayed, nodes: Sequence[NodeState], path: str) -> None:
    """One PNG with four pictures.

    :raises InputFault: if matplotlib is not installed, or the file cannot be written.
    """
    must_be_possible()
    from matplotlib import pyplot

    if replayed.timeline is None:
        raise ValueError("plots need a replay with a timeline")
    rows = list(replayed.timeline.rows())
    teams = _teams(replayed)
    colours = {team: pyplot.get_cmap("tab20")(place) for place, team in enumerate(teams)}
    figure, axes = pyplot.subplots(2, 2, figsize=(16, 10), layout="constrained")
    _utilisation(axes[0][0], rows, colours, replayed.occupancy.capacity)
    _queue_depth(axes[0][1], rows)
    _waits(axes[1][0], replayed, colours)
    _occupancy(axes[1][1], replayed, nodes, colours)
    # No date and no version in the file: the same replay makes the same bytes.
    try:
        figure.savefig(path, format="png", dpi=100, metadata={"Software": None})
    except OSError as error:
        raise InputFault(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        pyplot.close(figure)


def _teams(replayed: Replayed) -> list[str]:
    """The projects with the most GPU time, the rest as one."""
    used: dict[str, float] = {}
    for record in replayed.records:
        job = record.job
        used[job.project] = used.get(job.project, 0.0) + job.duration_s * job.milli
    ranked = sorted(used, key=lambda team: (-used[team], team))
    return sorted(ranked[:TEAMS]) + (["others"] if len(ranked) > TEAMS else [])


def _team(project: str, colours: dict[str, Any]) -> str:
    return project if project in colours else "others"


def _utilisation(axes: Any, rows: Sequence[Row], colours: dict[str, Any], capacity: int) -> None:
    hours = [row.time_s / HOUR for row in rows]
    series: dict[str, list[float]] = {team: [0.0] * len(rows) for team in colours}
    for place, row in enumerate(rows):
        for project, milli in row.by_project.items():
            series[_team(project, colours)][place] += 100.0 * milli / max(capacity, 1)
    shades = list(colours.values())
    axes.stackplot(hours, list(series.values()), labels=list(series), colors=shades, step="post")
    axes.set(title="Utilisation", xlabel="hours", ylabel="% of GPUs", ylim=(0, 100))
    if len(series) > 1:
        axes.legend(loc="upper left", fontsize="x-small", ncols=2)


def _queue_depth(axes: Any, rows: Sequence[Row]) -> None:
    hours = [row.time_s / HOUR for row in rows]
    axes.step(hours, [row.waiting for row in rows], where="post", label="waiting")
    axes.step(hours, [row.running for row in rows], where="post", label="running")
    axes.set(title="Queue depth", xlabel="hours", ylabel="jobs")
    axes.legend(loc="upper left", fontsize="x-small")


def _waits(axes: Any, replayed: Replayed, colours: dict[str, Any]) -> None:
    waits: dict[str, list[float]] = {team: [] for team in colours}
    for record in replayed.records:
        wait = wait_of(record)
        if wait is not None:
            waits[_team(record.job.project, colours)].append(wait / HOUR)
    spreads = [Spread.of(values) for values in waits.values()]
    places = range(len(spreads))
    axes.bar([one - 0.2 for one in places], [one.mean for one in spreads], 0.4, label="mean")
    axes.bar([one + 0.2 for one in places], [one.p90 for one in spreads], 0.4, label="P90")
    axes.set_xticks(list(places), list(waits), rotation=45, ha="right", fontsize="x-small")
    axes.set(title="Waits by team", ylabel="hours")
    axes.legend(fontsize="x-small")


def _occupancy(
    axes: Any, replayed: Replayed, nodes: Sequence[NodeState], colours: dict[str, Any]
) -> None:
    """Each GPU is a line, each attempt a bar on the lines that it held."""
    from matplotlib.collections import PolyCollection

    line: dict[str, int] = {}
    for node in nodes:
        for device in node.devices:
            line[device.id] = len(line)
    shapes: list[list[tuple[float, float]]] = []
    faces: list[Any] = []
    for record in replayed.records:
        colour = colours[_team(record.job.project, colours)]
        for attempt in record.attempts:
            end = attempt.end_s if attempt.end_s is not None else attempt.start_s
            for low, high in _bands(line[one] for task in attempt.tasks for one, _ in task.devices):
                left, right = attempt.start_s / HOUR, end / HOUR
                shapes.append([(left, low), (right, low), (right, high), (left, high)])
                faces.append(colour)
    cut = shapes[:RECTANGLES]
    axes.add_collection(PolyCollection(cut, facecolors=faces[:RECTANGLES], edgecolors="none"))
    axes.autoscale_view()
    note = f" (the first {RECTANGLES} bars)" if len(cut) < len(shapes) else ""
    axes.set(title=f"GPUs over time{note}", xlabel="hours", ylabel="GPU", ylim=(0, len(line)))


def _bands(lines: Any) -> list[tuple[int, int]]:
    """Neighbouring lines as one band."""
    ordered = sorted(set(lines))
    if not ordered:
        return []
    cuts = [0] + [at + 1 for at, (a, b) in enumerate(pairwise(ordered)) if b != a + 1]
    ends = [*cuts[1:], len(ordered)]
    return [(ordered[a], ordered[b - 1] + 1) for a, b in zip(cuts, ends, strict=True)]
