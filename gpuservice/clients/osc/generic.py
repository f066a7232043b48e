# SPDX-License-Identifier: Apache-2.0
"""The generic commands: list, show, create, set, delete, act; a noun's file declares the rest."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from cliff import _argparse
from openstack import resource
from osc_lib import exceptions
from osc_lib.command import command

from gpuservice.clients.osc import values
from gpuservice.clients.osc.failures import told
from gpuservice.clients.osc.options import Option, add_all, collected
from gpuservice.clients.sdk import Proxy
from gpuservice.clients.sdk.v1._base import etag, is_id

#: Fields of every object that no show needs.
_HIDDEN = ("links", "location")

#: Fields that a show begins with.
_FIRST = ("id", "name", "project_id", "status")

_PROJECT = Option(
    "--project",
    "of this project (as an administrator; without authentication: as this project)",
    metavar="<project>",
)


class _HelpFormatter(_argparse.SmartHelpFormatter):
    """Keeps paragraphs apart, and the lines of the example as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = []
        for paragraph in text.split("\n\n"):
            if any(line.startswith(" ") for line in paragraph.splitlines()):
                paragraphs.append(paragraph)
            else:
                paragraphs.append(textwrap.fill(" ".join(paragraph.split()), width))
        return "\n\n".join(paragraphs)


class GpuCommand(command.Command):
    """What every command has: the proxy, an example in its help, failures in words."""

    example: ClassVar[str] = ""
    #: The body of the last request, for failures to show the value at fault.
    sent: Any = None

    def get_epilog(self) -> str:
        """The example, then what the framework adds."""
        lines = "\n".join(f"  $ {line}" for line in self.example.splitlines())
        return "\n\n".join(part for part in (f"Example:\n{lines}", super().get_epilog()) if part)

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The parser, with our help formatter."""
        parser = super().get_parser(prog_name)
        parser.formatter_class = _HelpFormatter
        return parser

    @property
    def gpu(self) -> Proxy:
        """The service."""
        manager: Any = self.app.client_manager
        client: Proxy = manager.gpu
        return client

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run it; the service's failures become the command's."""
        try:
            code: int = super().run(parsed_args)
        except exceptions.CommandError:
            raise
        except Exception as error:
            failure = told(error, self.sent)
            if failure is None:
                raise
            raise failure from error
        return code

    def be_project(self, project: str) -> bool:
        """Act as a project where nothing is authenticated; False where that cannot be."""
        if self.app.client_manager.auth_plugin_name != "none":
            return False
        self.gpu.additional_headers["X-Project-Id"] = project
        return True


class NounCommand(GpuCommand):
    """A command on one noun."""

    #: The noun as in the names of the proxy's methods, like ``gpu_type``.
    noun: ClassVar[str]

    def one(self, name_or_id: str) -> Any:
        """The object with a name or an id."""
        finder = getattr(self.gpu, f"find_{self.noun}", None)
        if finder is not None:
            return finder(name_or_id, ignore_missing=False)
        if not is_id(name_or_id):
            word = self.noun.replace("_", " ")
            raise exceptions.CommandError(
                f"{name_or_id!r} is no id; a {word} has no name, list them to see their ids."
            )
        return getattr(self.gpu, f"get_{self.noun}")(name_or_id)

    def add_target(self, parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
        """The positional argument that names the object (or objects)."""
        word = self.noun.replace("_", "-")
        settings: dict[str, Any] = {"nargs": nargs} if nargs else {}
        parser.add_argument("target", metavar=f"<{word}>", help="Name or id", **settings)


class ShowCommand(NounCommand, command.ShowOne):
    """Base of what prints one object."""

    def shown(
        self, parsed_args: argparse.Namespace, body: Any
    ) -> tuple[Sequence[str], Sequence[Any]]:
        """An object, or a dict, as columns and values."""
        if isinstance(body, resource.Resource):
            body = body.to_dict(headers=False, computed=False, original_names=True)
        names = [name for name in _FIRST if name in body]
        names += [name for name in body if name not in _FIRST and name not in _HIDDEN]
        return names, [values.for_output(body[name], parsed_args.formatter) for name in names]


class ListNoun(NounCommand, command.Lister):
    """List objects."""

    #: The proxy's method.
    items: ClassVar[str]
    columns: ClassVar[Sequence[str]]
    long_columns: ClassVar[Sequence[str]] = ()
    filters: ClassVar[Sequence[Option]] = ()
    #: Whether the objects belong to projects.
    scoped: ClassVar[bool] = True
    #: Whether the service orders them as asked; else they come by what the marker names.
    sortable: ClassVar[bool] = True

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Paging, order, filters, whose."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--limit", type=int, metavar="<n>", help="At most so many")
        parser.add_argument("--marker", metavar="<id>", help="Begin after the one with this id")
        if self.sortable:
            # cliff's own --sort-column orders what was fetched; this one the service.
            parser.add_argument(
                "--sort", metavar="<key>[:asc|desc],...", help="Let the service order them so"
            )
        parser.add_argument("--long", action="store_true", help="More columns")
        if self.scoped:
            _PROJECT.add_to(parser)
            parser.add_argument(
                "--all-projects", action="store_true", help="Those of all projects (administrators)"
            )
        add_all(parser, self.filters)
        return parser

    def query(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """The list's parameters."""
        query = collected(self.filters, parsed_args)
        if parsed_args.limit is not None:
            if parsed_args.limit < 1:
                raise exceptions.CommandError("--limit must be 1 or more.")
            query["max_items"] = parsed_args.limit
        for name in ("marker", "sort"):
            if getattr(parsed_args, name, None):
                query[name] = getattr(parsed_args, name)
        if self.scoped:
            project = _PROJECT.given(parsed_args)
            if project is not None and not self.be_project(project):
                query["project_id"] = project
            if parsed_args.all_projects:
                query["all_projects"] = True
        return query

    def objects(self, parsed_args: argparse.Namespace) -> Iterable[Any]:
        """What is listed."""
        found: Iterable[Any] = getattr(self.gpu, self.items)(**self.query(parsed_args))
        return found

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Columns and rows."""
        columns = [*self.columns]
        if parsed_args.long or parsed_args.columns:
            columns += self.long_columns
        rows = [
            [values.for_output(cell(one, column), parsed_args.formatter) for column in columns]
            for one in self.objects(parsed_args)
        ]
        return columns, rows

    def produce_output(
        self,
        parsed_args: argparse.Namespace,
        column_names: Sequence[str],
        data: Iterable[Sequence[Any]],
    ) -> int:
        """Print; the format ``value`` with tabs between, and ``-`` for what is absent, so that
        ``while read a b`` never mixes columns up."""
        if parsed_args.formatter != "value":
            code: int = super().produce_output(parsed_args, column_names, data)
            return code
        chosen = parsed_args.columns or column_names
        unknown = [name for name in chosen if name not in column_names]
        if unknown:
            raise exceptions.CommandError(
                f"There is no column {unknown[0]!r}; there are: {', '.join(column_names)}."
            )
        places = [column_names.index(name) for name in chosen]
        for row in data:
            cells = [str(row[place]) for place in places]
            if len(cells) > 1:
                cells = [one or "-" for one in cells]
            self.app.stdout.write("\t".join(cells) + "\n")
        return 0


def cell(item: Any, column: str) -> Any:
    """The value of a column; ``waiting.code`` looks into ``waiting``."""
    value: Any = item
    for name in column.split("."):
        if value is None:
            return None
        value = (
            value.get(name)
            if isinstance(value, dict) and not isinstance(value, resource.Resource)
            else getattr(value, name, None)
        )
    return value


class ShowNoun(ShowCommand):
    """Show one object."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Which."""
        parser = super().get_parser(prog_name)
        self.add_target(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Find it and show it."""
        return self.shown(parsed_args, self.one(parsed_args.target))


class CreateNoun(ShowCommand):
    """Create an object."""

    fields: ClassVar[Sequence[Option]] = ()

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Its name and fields."""
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="<name>", help="Its name")
        add_all(parser, self.fields)
        return parser

    def body(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """What is sent."""
        return {"name": parsed_args.name, **collected(self.fields, parsed_args)}

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Create it and show it."""
        body = self.body(parsed_args)
        self.sent = {self.noun: body}
        return self.shown(parsed_args, getattr(self.gpu, f"create_{self.noun}")(**body))


class SetNoun(ShowCommand):
    """Change an object."""

    fields: ClassVar[Sequence[Option]] = ()

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Which, and what of it."""
        parser = super().get_parser(prog_name)
        self.add_target(parser)
        add_all(parser, self.fields)
        add_generation(parser)
        return parser

    def changes(self, parsed_args: argparse.Namespace, target: Any) -> dict[str, Any]:
        """What is sent."""
        return collected(self.fields, parsed_args)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Change it and show it."""
        target = self.one(parsed_args.target)
        changes = self.changes(parsed_args, target)
        if not changes:
            raise exceptions.CommandError("Nothing to change: name at least one option.")
        self.sent = {self.noun: changes}
        update = getattr(self.gpu, f"update_{self.noun}")
        return self.shown(parsed_args, update(target.id, **changes, **match(parsed_args)))


class DeleteNoun(NounCommand):
    """Delete objects."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Which."""
        parser = super().get_parser(prog_name)
        self.add_target(parser, "+")
        add_generation(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Delete each; what fails is told, the others go on."""
        each(
            self,
            parsed_args.target,
            lambda one: getattr(self.gpu, f"delete_{self.noun}")(
                one.id, ignore_missing=False, **match(parsed_args)
            ),
        )


class ActOnNoun(NounCommand):
    """Ask for an action on objects."""

    action: ClassVar[str]
    #: The action's own parameters.
    details: ClassVar[Sequence[Option]] = ()

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Which, and how."""
        parser = super().get_parser(prog_name)
        self.add_target(parser, "+")
        add_all(parser, self.details)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Ask for it on each; what fails is told, the others go on."""
        details = collected(self.details, parsed_args)
        self.sent = {self.action: details}
        each(self, parsed_args.target, lambda one: one.act(self.gpu, self.action, details))


def each(doing: NounCommand, targets: Sequence[str], work: Any) -> None:
    """Do something with each of several objects.

    :raises osc_lib.exceptions.CommandError: in the end, naming all that failed.
    """
    failures: list[str] = []
    for target in targets:
        try:
            work(doing.one(target))
        except Exception as error:
            failure = (
                error if isinstance(error, exceptions.CommandError) else told(error, doing.sent)
            )
            if failure is None:
                raise
            failures.append(f"{target}: {failure}" if len(targets) > 1 else str(failure))
    if failures:
        raise exceptions.CommandError("\n".join(failures))


def add_generation(parser: argparse.ArgumentParser) -> None:
    """The option that guards against somebody else's change."""
    parser.add_argument(
        "--generation",
        type=int,
        metavar="<n>",
        help="Only if it still has this generation (see show)",
    )


def match(parsed_args: argparse.Namespace) -> dict[str, str]:
    """The guard as the proxy takes it."""
    if parsed_args.generation is None:
        return {}
    return {"if_match": etag(parsed_args.generation)}
