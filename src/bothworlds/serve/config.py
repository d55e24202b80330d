"""Settings of the service: from a TOML file, then from the environment, then from the command line."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from .schemas import MAX_SLOT

__all__ = ["Config", "Limits", "load_config"]

PREFIX = "BOTHWORLDS_"
LISTS = ("allowed_origins", "trusted_proxies")
Positive = Annotated[int, Meta(ge=1)]


class Limits(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much the service takes."""

    body_bytes: Positive = 1 << 20
    import_bytes: Positive = 1 << 30
    batch: Positive = 1000  # events in one call of feedback
    items: Positive = 1000  # on one surface
    slots: Annotated[int, Meta(ge=1, le=MAX_SLOT + 1)] = 50
    surfaces: Positive = 1000
    body_seconds: Annotated[float, Meta(gt=0)] = 30.0  # how long a body may take to arrive
    head_bytes: Annotated[int, Meta(ge=1024)] = 1 << 16  # request line and headers
    head_seconds: Annotated[float, Meta(gt=0)] = 10.0  # how long they may take to arrive
    reserved_descriptors: Positive = 128  # file descriptors that connections leave to the store and the log


class Config(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings, with their defaults."""

    store: Annotated[str, Meta(min_length=1)] = "bothworlds.db"
    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8080
    workers: Annotated[int, Meta(ge=1, le=256)] = 1
    allowed_origins: tuple[str, ...] = ()  # pages of these origins may call rank and feedback from the browser
    trusted_proxies: tuple[str, ...] = ("127.0.0.1", "::1")  # whose X-Forwarded-Proto and -For are believed
    public_rank: bool = False  # rank without a key
    public_feedback: bool = False  # feedback without a key: every event is signed by its token
    public_metrics: bool = False
    refresh_ms: Positive = 100
    refresh_events: Positive = 100
    stop_seconds: Annotated[int, Meta(ge=1)] = 10  # how long a stop waits for requests under way
    log: Literal["auto", "json", "console"] = "auto"
    request_log: bool = True
    limits: Limits = msgspec.field(default_factory=Limits)


def load_config(path: Path | None, environment: Mapping[str, str] | None = None, **given: Any) -> Config:
    """The settings in force; what is given beats the environment, which beats the file.

    >>> load_config(None, {"BOTHWORLDS_PORT": "9000", "BOTHWORLDS_LIMITS_BATCH": "10"}, host="::1").limits.batch
    10
    """
    said = _read(path) if path is not None else {}
    variables = os.environ if environment is None else environment
    _merge(said, _from_environment(variables))
    _merge(said, {name: value for name, value in given.items() if value is not None})
    try:
        return msgspec.convert(said, Config, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(_fault(error, variables)) from None


def _fault(error: msgspec.ValidationError, environment: Mapping[str, str]) -> str:
    """What is wrong with a setting, by the name under which it was given."""
    detail, _, place = str(error).partition(" - at ")
    setting = place.strip("`$.")
    variable = PREFIX + setting.upper().replace(".", "_")
    name = f"the variable {variable}" if variable in environment else f"the setting {setting or 'of the service'}"
    return f"{name} is wrong: {detail[:1].lower() + detail[1:]}"


def _read(path: Path) -> dict[str, Any]:
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
        msgspec.convert(said, Config)
        return said
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}; --config names a TOML file with settings") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"cannot read the settings in {path}: {error}") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Variables that are settings; those of limits begin with BOTHWORLDS_LIMITS_, lists are separated by commas."""
    said: dict[str, Any] = {}
    for kind, prefix, target in ((Config, PREFIX, said), (Limits, f"{PREFIX}LIMITS_", said.setdefault("limits", {}))):
        for field in msgspec.structs.fields(kind):
            text = environment.get(prefix + field.name.upper())
            if text is not None and field.name != "limits":
                target[field.name] = _listed(text) if field.name in LISTS else text
    return said


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _merge(said: dict[str, Any], more: Mapping[str, Any]) -> None:
    limits = {**said.get("limits", {}), **more.get("limits", {})}
    said.update(more)
    said["limits"] = limits
