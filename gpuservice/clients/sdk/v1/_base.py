# SPDX-License-Identifier: Apache-2.0
"""What all nouns share: fields, lists, names, idempotent creation and edits under a generation."""

from __future__ import annotations

import builtins
import re
import time
import urllib.parse
import uuid
from collections.abc import Generator, Mapping
from typing import Any, ClassVar, Self

from keystoneauth1 import adapter
from openstack import exceptions, resource

from gpuservice.clients.sdk.errors import GpuConflict, raise_for

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)

#: What each list takes beside a noun's own filters.
LIST_PARAMETERS = ("sort", "with_count", "all_projects", "project_id")

#: How often, and after how many seconds each, a creation is tried again whose first try is
#: still running on the server.
_BUSY_TRIES = 20
_BUSY_PAUSE_S = 0.5


def is_id(text: str) -> bool:
    """Whether it is an id; names never look like one."""
    return _UUID.fullmatch(text) is not None


def etag(generation: int | str) -> str:
    """A generation as the value of ``If-Match``; ``*`` stays ``*``."""
    return "*" if generation == "*" else f'"{generation}"'


class GpuResource(resource.Resource):
    """Base of all nouns.

    Set ``if_match`` (see ``etag``) to make a change or a deletion fail with 412 when somebody
    changed the object since; set ``idempotency_key`` to choose the key of a creation yourself.
    """

    commit_method = "PATCH"

    #: Objects of one answer; None leaves it to the service.
    page_size: ClassVar[int | None] = None

    #: Fields that a newer service adds are kept.
    _allow_unknown_attrs_in_body = True

    id = resource.Body("id")
    name = resource.Body("name")
    #: The owning project; None for what is cloud-wide.
    project_id = resource.Body("project_id")
    #: ISO 8601, UTC.
    created_at = resource.Body("created_at")
    updated_at = resource.Body("updated_at")
    #: Counts the changes of what a client may write.
    generation = resource.Body("generation", type=int)
    links = resource.Body("links", type=list)
    if_match = resource.Header("If-Match")
    idempotency_key = resource.Header("Idempotency-Key")

    def create(
        self,
        session: adapter.Adapter,
        prepend_key: bool = True,
        base_path: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Create it under an idempotency key, so that a repeated request makes nothing twice."""
        if not self.idempotency_key:
            self.idempotency_key = str(uuid.uuid4())
        for left in reversed(range(_BUSY_TRIES)):
            try:
                return super().create(session, prepend_key, base_path, **kwargs)
            except GpuConflict as error:
                if error.code != "gpu.idempotency.in_progress" or not left:
                    raise
                time.sleep(_BUSY_PAUSE_S)
        raise AssertionError("the last try returns or raises")

    @classmethod
    def list(
        cls,
        session: adapter.Adapter,
        paginated: bool = True,
        base_path: str | None = None,
        allow_unknown_params: bool = False,
        *,
        microversion: str | None = None,
        headers: dict[str, str] | None = None,
        max_items: int | None = None,
        **params: Any,
    ) -> Generator[Self, None, None]:
        """Generate the objects, page after page.

        :param max_items: how many at most; ``limit`` is the size of a page.
        :param params: filters as api.md has them; ``labels={"team": "vision"}`` filters by label.
        :raises openstack.exceptions.InvalidResourceQuery: for a parameter that is none.
        """
        names = {name for name in params if f"%({name})s" in (base_path or cls.base_path)}
        uri = (base_path or cls.base_path) % params
        query = cls._query_of({key: params[key] for key in params if key not in names})
        if max_items is not None:
            query.setdefault("limit", str(max(1, min(max_items, 1000))))
        elif cls.page_size is not None:
            query.setdefault("limit", str(cls.page_size))
        seen = 0
        while True:
            response = session.get(uri, params=query, headers=headers or {})
            raise_for(response)
            body = response.json()
            for raw in body[cls.resources_key]:
                if max_items is not None and seen >= max_items:
                    return
                seen += 1
                yield cls.existing(
                    connection=session._get_connection(),  # type: ignore[attr-defined]
                    **raw,
                    **{name: params[name] for name in names},
                )
            following = _next_query(body)
            if not paginated or following is None or following == query:
                return
            query = following

    @classmethod
    def _query_of(cls, params: Mapping[str, Any]) -> dict[str, str]:
        """The query string's parts."""
        query: dict[str, str] = {}
        for name, value in params.items():
            if value is None:
                continue
            if name == "labels":
                query.update({f"labels.{key}": str(one) for key, one in value.items()})
            elif name in cls._query_mapping._mapping:
                query[name] = _query_value(value)
            else:
                known = ", ".join(sorted(cls._query_mapping._mapping))
                raise exceptions.InvalidResourceQuery(
                    f"Invalid query parameter {name!r}; allowed are: {known}."
                )
        return query

    @classmethod
    def find(  # type: ignore[override]
        cls,
        session: adapter.Adapter,
        name_or_id: str,
        ignore_missing: bool = True,
        list_base_path: str | None = None,
        *,
        microversion: str | None = None,
        all_projects: bool | None = None,
        **params: Any,
    ) -> Self | None:
        """The one with an id or a name.

        :raises openstack.exceptions.NotFoundException: when there is none and
            ``ignore_missing`` is false.
        :raises openstack.exceptions.DuplicateResource: when several have the name.
        """
        noun = cls.noun()
        if is_id(name_or_id):
            try:
                made = cls.existing(
                    id=name_or_id,
                    connection=session._get_connection(),  # type: ignore[attr-defined]
                    **params,
                )
                return made.fetch(session)
            except exceptions.NotFoundException:
                if ignore_missing:
                    return None
                raise
        matches: builtins.list[Self] = []
        if "name" in cls._query_mapping._mapping:
            matches = cls._preferred(
                builtins.list(
                    cls.list(
                        session, name=name_or_id, all_projects=all_projects, max_items=20, **params
                    )
                )
            )
        if len(matches) > 1:
            ids = ", ".join(str(one.id) for one in matches[:5])
            more = ", ..." if len(matches) > 5 else ""
            raise exceptions.DuplicateResource(
                f"More than one {noun} is named {name_or_id!r}; name it by its id ({ids}{more})."
            )
        if matches:
            return matches[0]
        if ignore_missing:
            return None
        raise exceptions.NotFoundException(
            f"There is no {noun} with the name or id {name_or_id!r}."
        )

    @classmethod
    def _preferred(cls, matches: builtins.list[Self]) -> builtins.list[Self]:
        """Those of the objects with one name that the name means."""
        return matches

    @classmethod
    def noun(cls) -> str:
        """The noun in words, like ``GPU type``."""
        return (cls.resource_key or cls.__name__).replace("_", " ").replace("gpu ", "GPU ")

    def act(
        self, session: adapter.Adapter, action: str, details: Mapping[str, Any] | None = None
    ) -> Self:
        """Ask for an action; what already holds is no error.

        :param details: the action's own parameters.
        """
        url = f"{self.base_path}/{self.id}/action"
        response = session.post(url, json={action: dict(details) if details else None})
        raise_for(response)
        if response.content:
            self._translate_response(response)
        return self

    def subresource(self, session: adapter.Adapter, name: str, **params: Any) -> Any:
        """The body of ``GET .../{id}/{name}``."""
        query = {key: _query_value(value) for key, value in params.items() if value is not None}
        response = session.get(f"{self.base_path}/{self.id}/{name}", params=query)
        raise_for(response)
        return response.json()


def _query_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple | set | frozenset):
        return "in:" + ",".join(str(one) for one in value)
    return str(value)


def _next_query(body: Mapping[str, Any]) -> dict[str, str] | None:
    """The query of the next page; only that is taken of the link, never a host or a path."""
    for link in body.get("links") or ():
        if link.get("rel") == "next" and link.get("href"):
            parts = urllib.parse.urlsplit(link["href"])
            return dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
    return None
