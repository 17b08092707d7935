"""What all commands share: where the memory is, the options of opening it, how they end."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from rmm_cli.models import API_KEY, DEFAULT, embedder, language_model
from rmm_cli.opening import KEY, STORE, Opening, is_there
from rmm_cli.output import Output
from rmm_core import RMMError

Step = Callable[..., None]

_OPENING = "Opening the memory"
_STORE: dict[str, Any] = {
    "store": Annotated[
        str, typer.Argument(metavar="STORE", help=f"A file, or a postgresql:// URL; left out, what {STORE} names.")
    ],
}


def _option(kind: Any, metavar: str, text: str, *names: str, **more: Any) -> Any:
    """An option of opening the memory."""
    return Annotated[kind, typer.Option(*names, metavar=metavar, help=text, rich_help_panel=_OPENING, **more)]


_NAME = str | None
_PLACE: dict[str, Any] = {
    "key_file": _option(Path | None, "FILE", f"Holds the key of an encrypted file; or {KEY}."),
    "settings": _option(list[str] | None, "NAME=VALUE", "A setting of RMMConfig; may be repeated.", "--set"),
}
_EMBEDS: dict[str, Any] = {
    "embed": _option(
        _NAME,
        "MODEL",
        "The embedder: a sentence-transformers model or its folder, or package.module:factory; or RMM_EMBED."
        f" {DEFAULT} when left out.",
        envvar="RMM_EMBED",
        show_envvar=False,
    ),
    "embed_url": _option(_NAME, "URL", f"An OpenAI-compatible endpoint that embeds; its key is in {API_KEY}."),
    "embed_model": _option(_NAME, "NAME", "The model there."),
}
_THINKS: dict[str, Any] = {
    "llm": _option(
        _NAME,
        "MODULE:FACTORY",
        "The language model. Without any, memories are made of the users' own sentences.",
    ),
    "llm_url": _option(_NAME, "URL", f"An OpenAI-compatible endpoint that answers; its key is in {API_KEY}."),
    "llm_model": _option(_NAME, "NAME", "The model there."),
}
_JSON: dict[str, Any] = {
    "as_json": Annotated[bool, typer.Option("--json", help="JSON on stdout, for programs.")],
}


class StoreCommand(TyperCommand):
    """A command whose first argument may be left out where the environment names the memory."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the memory of the environment in front where one is missing."""
        named = os.environ.get(STORE)
        if named and self._lacks_store(ctx, args):
            args = [named, *args]
        return list(super().parse_args(ctx, args))

    def _lacks_store(self, ctx: Any, args: list[str]) -> bool:
        arguments = [p for p in self.params if p.param_type_name == "argument"]
        values, _, _ = self.make_parser(ctx).parse_args(list(args))
        given = [v for p in arguments if isinstance(v := values.get(str(p.name)), str)]
        if len(given) < sum(p.required for p in arguments):
            return True
        return len(given) < len(arguments) and "://" not in given[0] and not is_there(Path(given[0]))


def opened(
    *, embeds: bool = False, thinks: bool = False, creates: bool = False, json: bool = True
) -> Callable[[Step], Step]:
    """Make a function of an :class:`Opening`, an :class:`Output` and its own options a command.

    Args:
        embeds: Whether it takes the options that name an embedder.
        thinks: Whether it takes those that name a language model.
        creates: Whether it makes a memory that is not there.
        json: Whether it takes ``--json``.
    """
    shared = _PLACE | (_EMBEDS if embeds else {}) | (_THINKS if thinks else {}) | (_JSON if json else {})

    def decorate(step: Step) -> Step:
        own = list(inspect.signature(step, eval_str=True).parameters.values())[2:]

        def command(**given: Any) -> None:
            mine = {p.name: given.pop(p.name) for p in own}
            output = Output(json=given.pop("as_json", False))
            _run(partial(step, _opening(given, creates), output, **mine), output)

        parameters = [_parameter(*item, inspect.Parameter.empty) for item in _STORE.items()]
        parameters += [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        parameters += [_parameter(*item, False if item[0] == "as_json" else None) for item in shared.items()]
        command.__doc__ = step.__doc__
        # Typer reads it; the type of a function has no such attribute.
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _opening(given: dict[str, Any], creates: bool) -> Opening:
    settings: Sequence[str] = given["settings"] or ()
    chosen: dict[str, Any] = {}
    if "embed" in given:
        chosen["embedder"] = partial(embedder, given["embed"], given["embed_url"], given["embed_model"])
    if "llm" in given:
        chosen["llm"] = partial(language_model, given["llm"], given["llm_url"], given["llm_model"])
    return Opening(given["store"], given["key_file"], tuple(settings), creates=creates, **chosen)


def _run(step: Callable[[], None], output: Output) -> None:
    """Run a command; what goes wrong is one line, whoever stops reading is left in peace."""
    try:
        with output.listening():
            step()
        sys.stdout.flush()
    except RMMError as error:
        output.note(f"error: {error}")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still to be flushed goes there
        raise typer.Exit(1) from None
