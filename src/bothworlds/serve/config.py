"""Settings of the service. The command line overrides the environment, which overrides the TOML file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from .schemas import MAX_SLOT

PREFIX = "BOTHWORLDS_"
LIST_SETTINGS = ("allowed_origins", "trusted_proxies")
Positive = Annotated[int, Meta(ge=1)]


class Limits(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits of requests, connections and surfaces."""

    body_bytes: Positive = 4 << 20
    import_bytes: Positive = 1 << 30
    batch: Positive = 1000  # events in one feedback request
    items: Positive = 20_000  # on one surface
    slots: Annotated[int, Meta(ge=1, le=MAX_SLOT + 1)] = 50
    surfaces: Positive = 1000
    body_seconds: Annotated[float, Meta(gt=0)] = 30.0  # for a body to arrive
    head_bytes: Annotated[int, Meta(ge=8192)] = 1 << 16  # request line and headers
    head_seconds: Annotated[float, Meta(gt=0)] = 10.0  # for request line and headers to arrive, and between requests
    write_seconds: Annotated[float, Meta(gt=0)] = 60.0  # without the client reading any of an unsent response


class Config(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings, with their defaults."""

    store: Annotated[str, Meta(min_length=1)] = "bothworlds.db"
    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8080
    workers: Annotated[int, Meta(ge=1, le=256)] = 1
    allowed_origins: tuple[str, ...] = ()  # whose pages may call rank and feedback from the browser
    trusted_proxies: tuple[str, ...] = ("127.0.0.1", "::1")  # whose X-Forwarded-Proto and -For are used
    public_rank: bool = False  # rank without a key
    public_feedback: bool = False  # feedback without a key: tokens are signed
    public_rate: Annotated[float, Meta(ge=0)] = 5.0  # requests a second without a key from one address; 0: no limit
    public_pages_a_day: Annotated[int, Meta(ge=0)] = 100  # of one address or visitor without a key count; 0: all
    public_metrics: bool = False
    refresh_ms: Positive = 100
    refresh_events: Positive = 100
    stop_seconds: Annotated[int, Meta(ge=1)] = 10  # how long a stop waits for open requests
    log: Literal["auto", "json", "console"] = "auto"
    request_log: bool = True
    limits: Limits = msgspec.field(default_factory=Limits)


def load_config(path: Path | None, environment: Mapping[str, str] | None = None, **options: Any) -> Config:
    """Return the settings of the file, overridden by the environment, overridden by the options that are not None.

    Raises ValueError that names the wrong setting or variable, or the file that cannot be read.

    >>> load_config(None, {"BOTHWORLDS_PORT": "9000", "BOTHWORLDS_LIMITS_BATCH": "10"}, host="::1").limits.batch
    10
    """
    settings = _read(path) if path is not None else {}
    variables = os.environ if environment is None else environment
    _merge(settings, _from_environment(variables))
    _merge(settings, {name: value for name, value in options.items() if value is not None})
    try:
        return msgspec.convert(settings, Config, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(_error_message(error, variables)) from None


def _error_message(error: msgspec.ValidationError, environment: Mapping[str, str]) -> str:
    """Return a sentence that names the wrong setting, or the variable that set it."""
    detail, _, place = str(error).partition(" - at ")
    setting = place.strip("`$.")
    variable = PREFIX + setting.upper().replace(".", "_")
    name = f"the variable {variable}" if variable in environment else f"the setting {setting or 'of the service'}"
    return f"{name} is wrong: {detail[:1].lower() + detail[1:]}"


def _read(path: Path) -> dict[str, Any]:
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
        msgspec.convert(settings, Config)
        return settings
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}; --config names a TOML file with settings") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"cannot read the settings in {path}: {error}") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings in variables: limits begin with BOTHWORLDS_LIMITS_, lists are separated by commas."""
    settings: dict[str, Any] = {}
    limits = settings.setdefault("limits", {})
    for kind, prefix, target in ((Config, PREFIX, settings), (Limits, f"{PREFIX}LIMITS_", limits)):
        for field in msgspec.structs.fields(kind):
            text = environment.get(prefix + field.name.upper())
            if text is not None and field.name != "limits":
                parts = [part.strip() for part in text.split(",") if part.strip()]
                target[field.name] = parts if field.name in LIST_SETTINGS else text
    return settings


def _merge(settings: dict[str, Any], overrides: Mapping[str, Any]) -> None:
    limits = {**settings.get("limits", {}), **overrides.get("limits", {})}
    settings.update(overrides)
    settings["limits"] = limits
