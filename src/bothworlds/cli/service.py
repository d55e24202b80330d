"""The commands around the service: serve, demo, verify, migrate, and keys."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from ..extras import install_command
from .common import SERVICE, CommandGroup, app, world_of

if TYPE_CHECKING:
    from ..serve.ops.verify import Verification
    from ..serve.stores import Store as AnyStore

F = TypeVar("F", bound=Callable[..., Any])

keys = CommandGroup(no_args_is_help=True, help="Create, list and revoke the keys of a service.")
app.add_typer(keys, name="keys", rich_help_panel=SERVICE)

STORE_METAVAR = "PATH|postgresql://..."
Store = Annotated[
    str,
    typer.Option(
        "--store", metavar=STORE_METAVAR, envvar="BOTHWORLDS_STORE", help="A SQLite file, or a PostgreSQL database."
    ),
]


def with_extra(command: F) -> F:
    """Decorate a command: a missing extra is an ImportError that names it, a StoreError becomes a ValueError."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        try:
            from ..serve.stores import StoreError

            try:
                return command(*arguments, **options)
            except StoreError as error:
                raise ValueError(str(error)) from error
        except ModuleNotFoundError as error:
            raise ImportError(f"the service needs {error.name}: {install_command('service')}") from error

    return cast(F, run)


@app.command(rich_help_panel=SERVICE)
@with_extra
def serve(
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar=STORE_METAVAR, help="A SQLite file, or a PostgreSQL database; bothworlds.db by default."
        ),
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on; 127.0.0.1 by default.")] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="Port to listen on; 8080 by default, 0 for any free one."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Number of processes; more than one needs PostgreSQL.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="TOML file with settings.")] = None,
) -> None:
    """Run the service: an HTTP API that ranks items and learns from clicks, with a dashboard.

    Options override environment variables (BOTHWORLDS_PORT=9000), which override the file.
    Without keys in the store, the service is reachable from this machine only.
    """
    from ..serve.config import load_config
    from ..serve.ops.supervise import serve as run

    run(load_config(config, store=store, host=host, port=port, workers=workers), typer.echo)


@app.command(rich_help_panel=SERVICE)
@with_extra
def demo(
    world: Annotated[
        str | None,
        typer.Option(
            "--world",
            "-w",
            metavar="NAME[:SETTING=VALUE,...]",
            help="World that the visitors come from; paper/stochastic:gap=0.1 by default.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar=STORE_METAVAR,
            help="A SQLite file, or a PostgreSQL database; bothworlds-demo.db by default.",
        ),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port to listen on.")] = 8080,
    rate: Annotated[float, typer.Option("--rate", min=0.1, help="Visitors per second.")] = 200.0,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.0, help="Stop after so many seconds.")] = None,
) -> None:
    """Run the service with simulated visitors, to watch it learn in the dashboard."""
    from ..serve.ops.demo import run

    simulated = None if world is None else world_of(world)
    run(simulated, store=store, port=port, rate=rate, seconds=seconds, say=typer.echo)


@app.command(rich_help_panel=SERVICE)
@with_extra
def verify(store: Store = "bothworlds.db") -> None:
    """Learn the log of a store again and compare every bit; the exit status is 1 if anything differs.

    It only reads, and a service may use the store meanwhile.
    """
    from ..progress import progress_bar
    from ..serve.ops.verify import verify as compare

    with _opened(store, read_only=True) as opened, progress_bar("verifying", len(opened.learners())) as progress:
        result = compare(opened, progress)
    typer.echo(
        f"learned {result.pages} pages of {result.learners} learners again, compared {result.snapshots} snapshots"
    )
    _list_problems(result)
    if not result.clean:
        raise typer.Exit(1)
    typer.echo("all are equal")


def _list_problems(result: Verification) -> None:
    for snapshot in result.unreadable:
        typer.echo(f"{snapshot} is of other versions or settings: the service learns the log again")
    for difference in result.differences:
        typer.echo(difference, err=True)


@app.command(rich_help_panel=SERVICE)
@with_extra
def rebuild(
    store: Store = "bothworlds.db",
    surface: Annotated[str | None, typer.Option("--surface", help="Only this surface; all by default.")] = None,
) -> None:
    """Learn what is left of the log again, so that nothing is left of what deleted events have taught.

    Stop the service first: a store that it uses is refused.
    """
    from ..progress import progress_bar
    from ..serve.ops.verify import rebuild as learn_again

    with _opened(store, alone=True) as opened, progress_bar("learning", len(opened.learners())) as progress:
        result = learn_again(opened, surface, progress)
    typer.echo(f"{result.learners} learners have learned {result.pages} pages again")


@app.command(rich_help_panel=SERVICE)
@with_extra
def migrate(
    source: Annotated[str, typer.Option("--from", metavar=STORE_METAVAR, help="The store to copy.")],
    target: Annotated[
        str, typer.Option("--to", metavar=STORE_METAVAR, help="An empty store, or a file that does not exist.")
    ],
) -> None:
    """Copy a store to another one, such as a file to PostgreSQL, and verify both; the source is not changed.

    Stop the service first: a store that it uses is refused, since what it acknowledges later would not be copied.
    The exit status is 1 if snapshots differ from the log, as in verify.
    """
    from ..progress import progress_bar
    from ..serve.ops.migrate import migrate as copy_store

    with (
        _opened(source, read_only=True, alone=True) as old,
        _opened(target) as new,
        progress_bar("copying", old.count_rows()) as progress,
    ):
        migration = copy_store(old, new, progress)
    result = migration.verification
    _list_problems(result)
    if not result.clean:
        typer.echo(
            f"copied {migration.rows} rows as they are; {len(result.differences)} snapshots differ from the log, in "
            "both stores alike: examine the source before you use the copy",
            err=True,
        )
        raise typer.Exit(1)
    typer.echo(f"copied {migration.rows} rows; the log of {result.learners} learners verified in both stores")


@keys.command("create")
@with_extra
def create_key(
    role: Annotated[list[str], typer.Option("--role", help="serve, ingest, read or admin; may be repeated.")],
    store: Store = "bothworlds.db",
    note: Annotated[str, typer.Option("--note", help="What the key is for.")] = "",
) -> None:
    """Create a key and print it; it cannot be shown again."""
    from ..serve.http.auth import create_key as create

    with _opened(store) as opened:
        typer.echo(create(opened, role, note, _now()))


@keys.command("list")
@with_extra
def list_keys(store: Store = "bothworlds.db") -> None:
    """List keys: their ids, roles and notes, never their secrets."""
    from ..serve.http.auth import list_keys as stored_keys
    from ..serve.model import rfc3339

    with _opened(store, read_only=True) as opened:
        stored = stored_keys(opened)
        if not stored:
            typer.echo(
                f"there are no keys; 'bothworlds keys create --role admin --store {store}' creates the first", err=True
            )
        for key in stored:
            state = f"revoked {rfc3339(key['revoked_at'])}" if key["revoked_at"] else "in use"
            typer.echo(f"{key['id']}  {','.join(key['roles'])}  {rfc3339(key['created_at'])}  {state}  {key['note']}")


@keys.command("revoke")
@with_extra
def revoke_key(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the key, as 'keys list' shows it.")],
    store: Store = "bothworlds.db",
) -> None:
    """Revoke a key; running services refuse it within seconds."""
    from ..serve.http.auth import revoke_key as revoke

    with _opened(store) as opened:
        revoke(opened, key_id, _now())
    typer.echo(f"{key_id} is revoked")


@contextlib.contextmanager
def _opened(address: str, *, read_only: bool = False, alone: bool = False) -> Iterator[Any]:
    from ..serve.stores import open_store

    opened: AnyStore = open_store(address, read_only=read_only, alone=alone)
    with contextlib.closing(opened):
        yield opened


def _now() -> int:
    return time.time_ns() // 1_000_000
