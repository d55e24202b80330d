"""The commands around the service: serve, demo, verify, migrate, and keys."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from .common import app, plainly, world_of

if TYPE_CHECKING:
    from ..serve.ops.verify import Verification
    from ..serve.stores.base import Store as AnyStore

F = TypeVar("F", bound=Callable[..., Any])

keys = typer.Typer(no_args_is_help=True, help="Make, list and revoke the keys of a service.")
app.add_typer(keys, name="keys")

PLACE = "PATH|postgresql://..."
Store = Annotated[
    str,
    typer.Option("--store", metavar=PLACE, envvar="BOTHWORLDS_STORE", help="A SQLite file, or a PostgreSQL database."),
]


def with_extra(command: F) -> F:
    """Name the extra that a command needs if it is not installed, and say in one line what is wrong with a store."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        try:
            from ..serve.stores.base import StoreError
        except ImportError as error:
            raise _extra(error) from error
        try:
            return command(*arguments, **options)
        except ModuleNotFoundError as error:
            raise _extra(error) from error
        except StoreError as error:
            raise ValueError(str(error)) from error

    return cast(F, run)


def _extra(error: ImportError) -> ImportError:
    return ImportError(f"the service needs {error.name}: pip install 'bothworlds[service]'")


@app.command()
@plainly
@with_extra
def serve(
    store: Annotated[
        str | None,
        typer.Option("--store", metavar=PLACE, help="Where everything is kept; bothworlds.db here if not given."),
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on; 127.0.0.1 if not given.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="Port to listen on; 8080 if not given, 0 for any.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes; more than one need PostgreSQL.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="TOML file with settings.")] = None,
) -> None:
    """Serve: rank items for a page, take its clicks, learn; with a dashboard.

    Settings come from the options, then from variables BOTHWORLDS_... (BOTHWORLDS_PORT=9000), then from the file.
    Without keys in the store, the service listens on this machine only.
    """
    from ..serve.config import load_config
    from ..serve.ops.run import serve as run

    run(load_config(config, store=store, host=host, port=port, workers=workers), _say)


@app.command()
@plainly
@with_extra
def demo(
    world: Annotated[
        str | None,
        typer.Option(
            "--world",
            "-w",
            metavar="NAME[:SETTING=VALUE,...]",
            help="World that the visitors come from; paper/stochastic:gap=0.1 if not given.",
        ),
    ] = None,
    store: Annotated[
        str | None, typer.Option("--store", metavar=PLACE, help="bothworlds-demo.db here if not given.")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port to listen on.")] = 8080,
    rate: Annotated[float, typer.Option("--rate", min=0.1, help="Visitors a second.")] = 200.0,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.0, help="Stop after that long.")] = None,
) -> None:
    """Serve simulated visitors, and watch the service learn in its dashboard."""
    from ..serve.ops.demo import run

    visited = None if world is None else world_of(world)
    run(visited, store=store, port=port, rate=rate, seconds=seconds, say=_say)


@app.command()
@plainly
@with_extra
def verify(store: Store = "bothworlds.db") -> None:
    """Rebuild all counters from the log and compare them bit for bit; the exit status is 1 if any differs."""
    from ..serve.ops.verify import verify as compare

    with _opened(store, read_only=True) as opened:
        found = compare(opened)
    typer.echo(
        f"compared {found.counters} counters of {found.segments} segments "
        f"with {found.events} settled events and {found.adjustments} adjustments"
    )
    _list_differences(found)
    if not found.clean:
        typer.echo(f"{found.n_differences} counters differ", err=True)
        raise typer.Exit(1)
    typer.echo("all are equal")


def _list_differences(found: Verification) -> None:
    for difference in found.differences:
        typer.echo(str(difference))


@app.command()
@plainly
@with_extra
def migrate(
    source: Annotated[str, typer.Option("--from", metavar=PLACE, help="The store to copy.")],
    target: Annotated[str, typer.Option("--to", metavar=PLACE, help="An empty store, or a file that does not exist.")],
) -> None:
    """Copy a store to another one, such as a file to PostgreSQL, and verify both; nothing in the first is changed.

    The exit status is 1 if counters differ from the log, as in verify.
    """
    from ..progress import progress_bar
    from ..serve.ops.migrate import migrate as move

    with (
        _opened(source, read_only=True) as old,
        _opened(target) as new,
        progress_bar("copying", old.count_rows()) as progress,
    ):
        moved = move(old, new, progress)
    if moved.target.clean:
        typer.echo(f"copied {moved.rows} rows; {moved.target.counters} counters verified in both stores")
        return
    _list_differences(moved.target)
    typer.echo(
        f"copied {moved.rows} rows as they are; {moved.target.n_differences} counters differ from the log, in both "
        "stores alike: look into the source before you use the copy",
        err=True,
    )
    raise typer.Exit(1)


@keys.command("create")
@plainly
@with_extra
def create_key(
    role: Annotated[
        list[str], typer.Option("--role", help="serve, ingest, read or admin; may be given several times.")
    ],
    store: Store = "bothworlds.db",
    note: Annotated[str, typer.Option("--note", help="What it is for.")] = "",
) -> None:
    """Make a key and print it; it is never shown again."""
    from ..serve.http.auth import create_key as create

    with _opened(store) as opened:
        typer.echo(create(opened, role, note, _now()))


@keys.command("list")
@plainly
@with_extra
def list_keys(store: Store = "bothworlds.db") -> None:
    """List keys: their ids, roles and notes, never their secrets."""
    from ..serve.http.auth import list_keys as kept
    from ..serve.schemas import rfc3339

    with _opened(store, read_only=True) as opened:
        found = kept(opened)
        if not found:
            typer.echo(
                f"there are no keys; 'bothworlds keys create --role admin --store {store}' makes the first", err=True
            )
        for key in found:
            state = f"revoked {rfc3339(key['revoked_at'])}" if key["revoked_at"] else "in use"
            typer.echo(f"{key['id']}  {','.join(key['roles'])}  {rfc3339(key['created_at'])}  {state}  {key['note']}")


@keys.command("revoke")
@plainly
@with_extra
def revoke_key(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id, as 'keys list' shows it.")],
    store: Store = "bothworlds.db",
) -> None:
    """Make a key useless; running services notice within seconds."""
    from ..serve.http.auth import revoke_key as revoke

    with _opened(store) as opened:
        revoke(opened, key_id, _now())
    typer.echo(f"{key_id} is revoked")


@contextlib.contextmanager
def _opened(place: str, *, read_only: bool = False) -> Iterator[Any]:
    from ..serve.stores.factory import open_store

    opened: AnyStore = open_store(place, read_only=read_only)
    with contextlib.closing(opened):
        yield opened


def _now() -> int:
    return time.time_ns() // 1_000_000


def _say(sentence: str) -> None:
    typer.echo(sentence)
