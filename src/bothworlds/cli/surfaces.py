"""The commands that create, list, show, edit, promote and delete the surfaces of a running service, over HTTP.

To add a command, call the API with ``call`` inside ``with service.connected()``, and print with ``service.print``. The
options of settings are made from ``surface_input.SETTINGS``: a new setting needs no change here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, urlencode

import typer

from ..extras import install_command
from ..serve.surface_input import SETTINGS, decoded, item_lines, named_value, value_of
from .common import SERVICE, CommandGroup, app, from_options, parse
from .service_connection import Service, call, of_service, prints_response

surfaces = CommandGroup(no_args_is_help=True, help="Create, show, edit and delete surfaces of a running service.")
items = CommandGroup(no_args_is_help=True, help="Add, pause, resume and remove items of a surface.")
app.add_typer(surfaces, name="surfaces", rich_help_panel=SERVICE)
surfaces.add_typer(items, name="items")

SurfaceName = Annotated[str, typer.Argument(metavar="SURFACE", help="The name of the surface.")]
ItemFile = Annotated[
    Path | None, typer.Option("--items", metavar="FILE", help="A text file with one item per line; - for the input.")
]
ItemNames = Annotated[list[str] | None, typer.Argument(metavar="ITEM", help="Names of items.")]
SPECIAL: dict[str, tuple[Any, Any]] = {  # settings whose option is not --name-of-the-setting VALUE
    "policy": (
        str | None,
        typer.Option(
            "--policy",
            metavar="NAME[:SETTING=VALUE,...]",
            help=f"{SETTINGS['policy']} A new policy starts with its own defaults.",
        ),
    ),
    "policy_settings": (
        list[str] | None,
        typer.Option(
            "--setting",
            metavar="NAME=VALUE",
            help=f"{SETTINGS['policy_settings']} May be repeated; replaces all settings of the policy.",
        ),
    ),
    "arms": (
        str | None,
        typer.Option(
            "--arms",
            metavar="JSON",
            help=f'{SETTINGS["arms"]} A list: \'[{{"name": "b", "policy": "ftrl-pbm", "share": 0.5}}]\'; [] for none.',
        ),
    ),
    "baseline": (
        Path | None,
        typer.Option("--baseline", metavar="FILE", help=f"{SETTINGS['baseline']} A text file with one item per line."),
    ),
}


def _option(name: str) -> Any:
    kind, option = SPECIAL.get(name) or (
        str | None,
        typer.Option(f"--{name.replace('_', '-')}", metavar="VALUE", help=SETTINGS[name]),
    )
    return Annotated[kind, option]


def _body(**given: Any) -> dict[str, Any]:
    """Return the settings that were given, as the API takes them. A policy comes with all of its settings."""
    body = {name: value_of(text) for name, text in given.items() if isinstance(text, str)}
    named = dict(map(named_value, given["policy_settings"] or ()))
    if given["policy"] is not None:
        body["policy"], settings = parse(given["policy"])
        body["policy_settings"] = settings | named
    elif named:
        body["policy_settings"] = named
    if given["baseline"] is not None:
        body["baseline"] = _read_items(given["baseline"]).names
    return body


with_settings = from_options("settings", {name: (_option(name), None) for name in SETTINGS}, _body)


class _ItemList(NamedTuple):
    """Items, and the place where each was written."""

    names: list[str]
    places: list[str]


def _read_items(path: Path | None) -> _ItemList:
    """Return the items of a file; none without a file. Raises ValueError or OSError."""
    if path is None:
        return _ItemList([], [])
    from_input = str(path) == "-"
    try:
        content = sys.stdin.buffer.read() if from_input else path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}; it has one item per line") from None
    except IsADirectoryError:
        raise ValueError(f"{path} is a folder, not a text file with one item per line") from None
    what = "the input" if from_input else str(path)
    lines = item_lines(decoded(content, what))
    if not lines:
        raise ValueError(f"{what} has no items; write one item per line")
    return _ItemList([name for _, name in lines], [f"{what}, line {number}" for number, _ in lines])


def _named_items(names: Sequence[str] | None, path: Path | None) -> _ItemList:
    """Return the items of the command line and of a file; raises ValueError if there are none."""
    read, written = _read_items(path), list(names or ())
    if not written and not read.names:
        raise ValueError("name at least one item, or a file with --items")
    return _ItemList(written + read.names, [f"item {name!r}" for name in written] + read.places)


def _path(surface: str, *parts: str) -> str:
    return "/v1/surfaces/" + "/".join(quote(part, safe="") for part in (surface, *parts))


def _summary(surface: dict[str, Any]) -> str:
    """Return the size of a surface in words."""
    states = [item["state"] for item in surface["items"]]
    others = [f"{states.count(state)} {state}" for state in ("paused", "removed") if state in states]
    return ", ".join([f"{surface['slots']} slots", f"{states.count('active')} active items", *others])


def _print_change(service: Service, surface: str, changed: dict[str, Any]) -> None:
    service.print(changed, f"{surface} has version {changed['version']}: {_summary(changed)}")


@surfaces.command("create")
@prints_response
@with_settings
def create_surface(
    service: Service,
    surface: SurfaceName,
    settings: dict[str, Any],
    item_file: ItemFile = None,
) -> None:
    """Create a surface: bothworlds surfaces create home --slots 3 --items items.txt."""
    read = _read_items(item_file)
    body = {**settings, "items": read.names, "version": 0}  # version 0: it must not exist
    exists = f"surface {surface!r} exists already; 'bothworlds surfaces edit' changes it"
    with service.connected(read.places, conflict=exists) as client:
        made = call(client, "PUT", _path(surface), body, tries=1)
    service.print(made, f"created {surface}: {_summary(made)}")


@surfaces.command("list")
@prints_response
def list_surfaces(service: Service) -> None:
    """List all surfaces."""
    with service.connected() as client:
        listed = call(client, "GET", "/v1/surfaces", expected="surfaces")
    if not listed["surfaces"]:
        typer.echo("there are no surfaces; 'bothworlds surfaces create' creates one", err=True)
    rows = [(one["name"], one["policy"], f"holdout {one['holdout']:g}", _summary(one)) for one in listed["surfaces"]]
    service.print(listed, *_aligned(rows))


@surfaces.command("show")
@prints_response
def show_surface(surface: SurfaceName, service: Service) -> None:
    """Show the settings and the items of a surface."""
    with service.connected() as client:
        shown = call(client, "GET", _path(surface))
    written = {name: json.dumps(value, ensure_ascii=False) for name, value in shown.items() if name in SETTINGS}
    service.print(
        shown,
        f"{surface}, version {shown['version']}, changed {shown['changed_at']}",
        *_aligned([("", name, text) for name, text in written.items()]),
        *_aligned([("", item["state"], item["name"]) for item in shown["items"]]),
    )


@surfaces.command("edit")
@prints_response
@with_settings
def edit_surface(
    service: Service,
    surface: SurfaceName,
    settings: dict[str, Any],
    version: Annotated[
        int | None, typer.Option("--if-version", min=1, help="Refuse if the surface has another version now.")
    ] = None,
) -> None:
    """Change settings of a surface. All others stay as they are, and so does what was learned."""
    if not settings:
        raise ValueError("nothing to change; name a setting, such as --holdout 0.1")
    with service.connected() as client:
        changed = call(client, "PATCH", _path(surface), settings | ({"version": version} if version else {}))
    _print_change(service, surface, changed)


@surfaces.command("promote")
@prints_response
def promote_arm(
    service: Service,
    surface: SurfaceName,
    arm: Annotated[str, typer.Argument(metavar="ARM", help="The name of the arm.")],
) -> None:
    """Serve the policy of one arm to all visitors, with everything that it has learned. The other arms end."""
    with service.connected() as client:
        changed = call(client, "POST", _path(surface, "promote"), {"arm": arm}, tries=1)
    service.print(changed, f"{surface} has version {changed['version']} and serves {changed['policy']}")


@surfaces.command("delete")
@of_service
def delete_surface(
    service: Service,
    surface: SurfaceName,
    confirmed: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a surface with its events and everything that was learned. This cannot be undone."""
    with service.connected() as client:
        call(client, "GET", _path(surface))  # a wrong name is an error before the question
        if not confirmed and typer.prompt(f"To delete surface {surface!r}, type its name") != surface:
            raise ValueError("nothing was deleted: this is not the name of the surface")
        client.call("DELETE", _path(surface), tries=1)
    typer.echo(f"deleted surface {surface!r}")


@surfaces.command("report")
@prints_response
def report_surface(
    service: Service,
    surface: SurfaceName,
    segment: Annotated[str | None, typer.Option("--segment", help="One segment; all together without it.")] = None,
) -> None:
    """Print how a surface performs, in the words of the dashboard; with --json, all figures."""
    query = "" if segment is None else "?" + urlencode({"segment": segment})
    with service.connected() as client:
        report = call(client, "GET", _path(surface, "report") + query)
    service.print(report, *([] if service.as_json else _report_lines(report)))


@items.command("add")
@prints_response
def add_items(
    service: Service,
    surface: SurfaceName,
    names: ItemNames = None,
    item_file: ItemFile = None,
) -> None:
    """Add items; a new item starts in the middle of the others. Items of the surface stay as they are."""
    read = _named_items(names, item_file)
    with service.connected(read.places) as client:
        version = call(client, "GET", _path(surface))["version"]  # PUT alone would create a surface
        changed = call(client, "PUT", _path(surface), {"items": read.names, "version": version}, tries=1)
    _print_change(service, surface, changed)


def _add_item_command(verb: str, sentence: str, *change: str) -> None:
    """Register a command that changes items: ``change`` is the method of its calls and the end of their path."""

    @items.command(verb, help=sentence)
    @prints_response
    def command(
        service: Service,
        surface: SurfaceName,
        names: ItemNames = None,
        item_file: ItemFile = None,
    ) -> None:
        _change_items(service, surface, _named_items(names, item_file), change)


_add_item_command("pause", "Pause items: they are not shown, and keep what was learned.", "POST", "pause")
_add_item_command("resume", "Show paused items again.", "POST", "resume")
_add_item_command("remove", "Remove items. Their counters are kept in case they are added again.", "DELETE")


def _change_items(service: Service, surface: str, read: _ItemList, change: tuple[str, ...]) -> None:
    """Send one call per item; if one fails, the changes before it stay."""
    from ..serve.client.http import ClientError

    method, *verb = change
    changed: dict[str, Any] = {}
    with service.connected() as client:
        for done, name in enumerate(read.names):
            try:
                changed = call(client, method, _path(surface, "items", name, *verb))
            except ClientError:
                if done:
                    typer.echo(f"{done} of {len(read.names)} items were changed", err=True)
                raise
    _print_change(service, surface, changed)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines with aligned columns.

    >>> _aligned([("home", "3 slots"), ("menu left", "5 slots")])
    ['home       3 slots', 'menu left  5 slots']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _report_lines(report: Any) -> list[str]:
    """Return a report in the words of the dashboard."""
    try:
        from ..serve.dashboard import arm_text, text
    except ImportError as error:
        raise ImportError(
            f"a report in words needs {error.name}: {install_command('service')}, or use --json"
        ) from error
    what, arms = text.counted(report), report["arms"]
    verdicts = [text.surface_verdict(report), *([arm_text.arm_verdict(report)] if arms else [])]
    verdicts += [text.learning_verdict(report["learning"], what), text.shift_verdict(report["shift"], what)]
    sentences = [part for verdict in verdicts for part in (verdict.sentence, verdict.meaning) if part]
    compared = [("arm", "policy", "share", "pages", f"{what} per page", "comparison")]
    for arm in arms:
        figures = text.percent(arm["share"]), text.count(arm["pages"]), text.number(arm["clicks_per_page"])
        named = arm_text.arm_name(arm["name"]), arm["policy"]
        compared.append((*named, *figures, arm_text.compared_with_first(arm, what)))
    clicks = what == text.CLICKS
    rows = [("item", "state", *(("click rate", "shows", "clicks") if clicks else ("reward", "shows", "total reward")))]
    for line in report["items"]:
        figures = text.percent(line["rate"]), text.count(line["shows"]), text.count(line["clicks"])
        rows.append((line["name"], line["state"], *figures))
    return [
        *map(text.sentence, sentences),
        *(f"{label}: {value}" for label, value in text.comparisons(report)),
        *map(text.sentence, report["warnings"]),
        *(["", *_aligned(compared)] if arms else []),
        "",
        *_aligned(rows),
    ]
