"""``--set name=value``: settings of a memory, as words on a command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from rmm_cli.text import near
from rmm_core import ConfigError, RMMConfig

_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def configuration(settings: Sequence[str]) -> RMMConfig:
    """The configuration that ``name=value`` settings make.

    Raises:
        typer.BadParameter: When a setting does not exist, or its value cannot work.
    """
    hints, given = get_type_hints(RMMConfig), {}
    names = [f.name for f in fields(RMMConfig)]
    for setting in settings:
        name, equals, value = setting.partition("=")
        if name not in names:
            hint = near(name, names) or f"; there are {', '.join(sorted(names))}"
            raise typer.BadParameter(f"there is no setting {name!r}{hint}", param_hint="--set")
        if not equals:
            raise typer.BadParameter(f"give {name} a value: --set {name}=...", param_hint="--set")
        given[name] = _typed(name, hints[name], value)
    try:
        return RMMConfig(**given)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--set") from error


def _typed(name: str, hint: Any, value: str) -> Any:
    """A value as its setting's type says."""
    choices = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        if value.lower() == "none" and NoneType in choices:
            return None
        (hint,) = (choice for choice in choices if choice is not NoneType)
    if get_origin(hint) is tuple:
        return tuple(part.strip() for part in value.split(","))
    if hint is str or get_origin(hint) is Literal:
        return value  # RMMConfig knows which there are
    if hint is bool and value.lower() in _TRUTH:
        return _TRUTH[value.lower()]
    if hint in (int, float):
        try:
            return hint(value)
        except ValueError:
            pass
    what = {bool: "true or false", int: "a whole number", float: "a number"}.get(hint, "not a value for a command line")
    raise typer.BadParameter(f"{name} is {what}; got {value!r}", param_hint="--set")
