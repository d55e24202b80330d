"""The form of a surface: its fields, their text, and the body of the API call that the text means.

Fields are derived from ``model.SurfaceSettings``, so that a new setting appears by itself. Nothing is validated here: a
text that is not a number is sent as it is, and the API says what is wrong with it.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

from ..model import Invalid, SurfaceSettings
from ..surface_input import SETTINGS, item_lines, named_values, written_values

Kind = Literal["number", "choice", "text", "names", "values", "json"]
Texts = Mapping[str, str]  # name of a field: what is written in it
FIRST = ("slots", "policy", "policy_settings")
TITLES: dict[str, tuple[str, ...]] = {
    "": FIRST,
    "Comparison with the page's own order": ("holdout", "baseline", "guard", "guard_after", "guard_margin"),
    "Comparison of policies": ("arms",),
    "Exploration": ("floor", "minimum_exposure", "baseline_rounds"),
    "Clicks or rewards": ("objective", "feedback", "attribution_seconds", "late_seconds"),
    "Context": ("labels", "item_labels"),
}
MORE = "More settings"  # the title of all others


@dataclass(frozen=True)
class Field:
    """The field of one setting: how it is shown, and between which choices."""

    name: str
    kind: Kind
    choices: tuple[str, ...] = ()
    step: str = "any"  # of a number
    default: Any = msgspec.NODEFAULT

    @property
    def label(self) -> str:
        """The name in words."""
        return self.name.replace("_", " ").capitalize()

    @property
    def help(self) -> str:
        """What the setting means."""
        return SETTINGS.get(self.name, "")

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is msgspec.NODEFAULT

    def text(self, value: Any) -> str:
        """Return the text of a value, as plain as JSON allows; an absent value is empty."""
        if value is None or value is msgspec.NODEFAULT:
            return ""
        if self.kind == "names":
            return "\n".join(value)
        if self.kind == "values":
            return written_values(value)
        if self.kind == "text" or isinstance(value, str):
            return str(value)
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
            value = int(value)
        return msgspec.json.format(msgspec.json.encode(value), indent=2 if self.kind == "json" else 0).decode()

    def value(self, text: str) -> Any:
        """Return the value of a text: the default if it is empty. Raises ValueError for a wrong line of settings."""
        if self.kind == "names":
            return [name for _, name in item_lines(text)]
        if self.kind == "values":
            return named_values(text)
        if not text.strip() and not self.required:
            return msgspec.to_builtins(self.default)
        return text.strip() if self.kind == "text" else _json_or_text(text.strip())


def _json_or_text(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _field(setting: msgspec.structs.FieldInfo) -> Field:
    """Return the field of a setting, by its type."""
    default = setting.default
    if setting.default_factory is not msgspec.NODEFAULT:
        default = setting.default_factory()
    kind = setting.type
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, types.UnionType):  # optional: an empty text is None
        kind = next(one for one in get_args(kind) if one is not type(None))
    if kind is bool:
        return Field(setting.name, "choice", ("true", "false"), default=default)
    if get_origin(kind) is Literal:
        return Field(setting.name, "choice", tuple(map(str, get_args(kind))), default=default)
    if kind in (int, float):
        return Field(setting.name, "number", step="1" if kind is int else "any", default=default)
    if kind is str:
        return Field(setting.name, "text", default=default)
    if kind == tuple[str, ...]:
        return Field(setting.name, "names", default=default)
    return Field(setting.name, "values" if get_origin(kind) is dict else "json", default=default)


FIELDS = {setting.name: _field(setting) for setting in msgspec.structs.fields(SurfaceSettings)}


def texts_of(settings: SurfaceSettings | None = None) -> dict[str, str]:
    """Return the text of every field; of the defaults without settings.

    >>> texts = texts_of(SurfaceSettings(slots=3, policy_settings={"rate": 0.3}, baseline=("lamp", "desk")))
    >>> texts["slots"], texts["policy_settings"], texts["baseline"], texts["guard"], texts["late_seconds"]
    ('3', 'rate = 0.3', 'lamp\\ndesk', 'true', '86400')
    """
    return {
        name: field.text(field.default if settings is None else getattr(settings, name))
        for name, field in FIELDS.items()
    }


def values_of(texts: Texts) -> dict[str, Any]:
    """Return the values of the fields as the API takes them; raises Invalid for fields that cannot be read.

    >>> values_of({"slots": "three", "holdout": " 0.1", "floor": "", "policy_settings": "rate = 0.3"})
    {'slots': 'three', 'policy_settings': {'rate': 0.3}, 'floor': 0.005, 'holdout': 0.1}
    """
    values, errors = {}, []
    for name, field in FIELDS.items():
        if name in texts:
            try:
                values[name] = field.value(texts[name])
            except ValueError as error:
                errors.append({"pointer": f"/{name}", "detail": str(error)})
    if errors:
        raise Invalid(errors[0]["detail"], errors=errors)
    return values


class FormErrors(NamedTuple):
    """The errors of a form: those of its fields, by name, and one of the form as a whole."""

    fields: Mapping[str, str] = {}
    whole: str = ""


def form_errors(
    detail: str, errors: Sequence[Mapping[str, str]], names: Collection[str], lines: Sequence[int] = ()
) -> FormErrors:
    """Return the errors of an API call by field; those of no field among ``names`` are an error of the whole form.

    ``lines`` are the numbers of the lines from which the items were read.

    >>> form_errors("not possible", [{"pointer": "/items/1", "detail": "too long"}], ["items"], [1, 4])
    FormErrors(fields={'items': 'line 4: too long'}, whole='')
    >>> form_errors("not possible", [{"pointer": "/items", "detail": "too few"}], ["slots"])
    FormErrors(fields={}, whole='not possible')
    """
    found = {}
    for error in errors:
        name, _, place = error["pointer"].strip("/").partition("/")
        if name in names:
            is_line = name == "items" and place.isdecimal() and int(place) < len(lines)
            found[name] = f"line {lines[int(place)]}: {error['detail']}" if is_line else error["detail"]
    return FormErrors(found, "" if found else detail)


class Group(NamedTuple):
    """Fields that are shown together; a group without a title is always open."""

    title: str
    fields: list[Field]
    open: bool


def groups(texts: Texts, errors: Mapping[str, str]) -> list[Group]:
    """Return all fields in groups. A group is open if one of its fields has an error or is not at its default."""
    placed = {name for names in TITLES.values() for name in names}
    titles = {**TITLES, MORE: tuple(name for name in FIELDS if name not in placed)}
    defaults = texts_of()
    return [
        Group(
            title,
            [FIELDS[name] for name in names if name in FIELDS],
            any(name in errors or texts.get(name, "") != defaults[name] for name in names if name in FIELDS),
        )
        for title, names in titles.items()
        if any(name in FIELDS for name in names)
    ]
