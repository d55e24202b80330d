"""The connection of commands to a running service: its options, its errors and the check of its responses."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from .common import from_options

if TYPE_CHECKING:
    from ..serve.client.client import Client
    from ..serve.client.http import ClientError

Url = Annotated[str, typer.Option("--url", envvar="BOTHWORLDS_URL", help="Address of the service.")]
Key = Annotated[
    str,
    typer.Option(
        "--key",
        envvar="BOTHWORLDS_KEY",
        show_default=False,
        help="A key, if the service needs one. Other users of this machine can see options: prefer the variable.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the response of the service as JSON.")]
NOT_A_SERVICE = "this is not the address of a bothworlds service; --url or BOTHWORLDS_URL sets it"
SECONDS = 30.0  # to wait for a response: a change waits for the store


class Service(NamedTuple):
    """A running service, and how its responses are printed."""

    url: str
    key: str
    as_json: bool = False

    @contextlib.contextmanager
    def connected(self, places: Sequence[str] = (), conflict: str = "") -> Iterator[Client]:
        """Yield a client; a ClientError inside the block becomes a ValueError with a sentence that says what to do.

        ``places`` are where the items of the request were written, and ``conflict`` replaces the detail of a 409.
        Raises ValueError for a malformed key.
        """
        from ..serve.client.client import Client
        from ..serve.client.http import ClientError

        key = self.key.strip()
        if not key.isascii() or len(key.split()) > 1:
            raise ValueError("the key is malformed; a key looks like bw_..., without spaces")
        with Client(self.url, key, timeout=SECONDS) as client:
            try:
                yield client
            except ClientError as error:
                detail = conflict if error.status == 409 else ""
                raise ValueError(detail or _explained(error, bool(key), places)) from error

    def print(self, response: Any, *lines: str) -> None:
        """Print a response as JSON, or as lines of text."""
        for line in [json.dumps(response, indent=2, ensure_ascii=False)] if self.as_json else lines:
            typer.echo(line)


CONNECTION = {"url": (Url, "http://127.0.0.1:8080"), "key": (Key, "")}
# Decorators of commands whose parameter ``service`` is a Service: without and with the option --json.
of_service = from_options("service", CONNECTION, Service)
prints_response = from_options("service", {**CONNECTION, "as_json": (AsJson, False)}, Service)


def call(client: Client, method: str, path: str, body: Any = None, *, expected: str = "items", **options: Any) -> Any:
    """Send a request and return its response; raises ValueError if that lacks the expected field."""
    response = client.call(method, path, body, **options)
    if not isinstance(response, dict) or expected not in response:
        raise ValueError(NOT_A_SERVICE)
    return response


def _explained(error: ClientError, keyed: bool, places: Sequence[str]) -> str:
    """Return what is wrong, with the place in the file or the name of the setting."""
    if not error.status:
        return f"{error.detail}; is the service running there? --url or BOTHWORLDS_URL sets its address"
    if error.status == 401 and not keyed:
        return "the service needs a key: set BOTHWORLDS_KEY, or use --key"
    if not error.problem:
        return f"{error.detail} ({error.status}): {NOT_A_SERVICE}"
    for wrong in error.problem.get("errors", ()):
        name, _, place = wrong.get("pointer", "").strip("/").partition("/")
        if name == "items" and place.isdecimal() and int(place) < len(places):
            return f"{places[int(place)]}: {wrong['detail']}"
        if name and name not in wrong["detail"]:
            return f"{name}: {wrong['detail']}"
    return error.detail
