"""The command that deletes events of a running service."""

from __future__ import annotations

from typing import Annotated

import typer

from .common import SERVICE, CommandGroup, app
from .service_connection import Service, of_service

events = CommandGroup(no_args_is_help=True, help="Delete events of a running service.")
app.add_typer(events, name="events", rich_help_panel=SERVICE)


@events.callback()
def _group() -> None:
    """Delete events of a running service."""


@events.command("delete")
@of_service
def delete(
    service: Service,
    event_ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of events.")] = None,
    visitor: Annotated[
        str | None, typer.Option("--visitor", help="Delete all events of this visitor, as rank requests named them.")
    ] = None,
    surface: Annotated[str | None, typer.Option("--surface", help="The surface of --request-id.")] = None,
    request_id: Annotated[
        str | None, typer.Option("--request-id", help="Delete the event of this rank request; needs --surface.")
    ] = None,
) -> None:
    """Delete events. What was learned from them stays; each deletion is in the audit log.

    This needs a key with the role admin, if the service has keys. The exit status is 1 if nothing was deleted.
    """
    if [bool(event_ids), visitor is not None, request_id is not None].count(True) != 1:
        raise ValueError("name the events by their ids, by --visitor, or by --surface and --request-id")
    if (surface is None) != (request_id is None):
        raise ValueError("--surface and --request-id need each other")
    with service.connected() as client:
        if visitor is not None:
            count = client.delete_visitor(visitor)
        elif surface is not None and request_id is not None:
            count = client.delete_request(surface, request_id)
        else:
            count = sum(client.delete_event(event_id) for event_id in event_ids or ())
    typer.echo(f"{count} {'event' if count == 1 else 'events'} deleted")
    if not count:
        raise typer.Exit(1)
