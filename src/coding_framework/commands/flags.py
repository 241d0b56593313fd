"""Flags made from the fields of a config: one knob has one spelling.

`add_flags(parser, SFTConfig, ["epochs", "batch_size"])` adds `--epochs` and `--batch-size`. Type,
limits, choices, default and help come from the field: the help is the first paragraph of the
docstring beneath it. A flag that the user does not give is absent from the namespace, so that the
default stands in the config alone. `cuda-rl` and the root scripts build all their parsers here.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from coding_framework.errors import UsageError, first_complaint

NO_DOCKER = ("--no-docker", "--no-docker-sandbox")
SHOWN_FLAGS = 16
"""A complaint lists a command's flags where they are no more than these."""
SHOWN_FIRST = 8
"""Flags that `--help` shows of a command that has more than `SHOWN_FLAGS`."""
ALL = "--help-all"
C = TypeVar("C", bound=BaseModel)


class FlagParser(argparse.ArgumentParser):
    """A parser whose complaint is one sentence, raised as UsageError. It takes no abbreviations.
    Its help shows the flags that matter first, and all of them with `--help-all`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)
        self._given: list[str] = []
        self.first: tuple[str, ...] = ()
        """By their names in the namespace; empty: those that were added first."""
        self.add_argument(ALL, action=_HelpAll, nargs=0, help=argparse.SUPPRESS)
        self.actions: dict[str, FlagParser] = {}
        """By the first word, of a command that also works without one (`add_action`)."""

    def format_help(self, *, whole: bool = False) -> str:
        flags = [a for a in self._actions if a.option_strings and a.help != argparse.SUPPRESS]
        others = [action for action in flags if action.dest != "help"]
        first = self.first or [action.dest for action in others[:SHOWN_FIRST]]
        later = {a: a.help for a in others if a.dest not in first and not a.required}
        if whole or len(flags) <= SHOWN_FLAGS:
            return super().format_help()
        try:
            for action in later:
                action.help = argparse.SUPPRESS
            shown = super().format_help()
        finally:
            for action, text in later.items():
                action.help = text
        return f"{shown}\n{len(later)} more flags: {self.prog} {ALL}\n"

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            raise UsageError(_unknown_argument(getattr(found, "parser", self), unknown[0]))
        return found

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if args and args[0] in self.actions:
            return self.actions[args[0]].parse_known_args(args[1:], namespace)
        self._given = list(args) if args is not None else []
        found, unknown = super().parse_known_args(args, namespace)
        if getattr(found, "no_docker", False):
            del found.no_docker
            if getattr(found, "sandbox", "auto") == "docker":
                raise UsageError("--no-docker and --sandbox docker exclude each other: choose one")
            if getattr(found, "sandbox", "auto") == "auto":
                found.sandbox = "no-docker"
        return found, unknown

    def error(self, message: str) -> NoReturn:
        first = next(iter(self._given), "-")
        if message.endswith("required: --task") and not first.startswith("-"):
            kernel = first.endswith((".cu", ".cuh"))
            meant = f"--task NAME --kernel {first}" if kernel else f"--task {first}"
            raise UsageError(f"--task is missing: did you mean {meant}? (see `{self.prog} --help`)")
        misspelt = self._misspelt()
        if misspelt is not None and "are required" in message:
            raise UsageError(_unknown_argument(self, misspelt))
        raise UsageError(_sentence(self, message))

    def _misspelt(self) -> str | None:
        """A flag that was given and is none of this parser's, of which a near one is."""
        known = [s for s in self._option_string_actions if s.startswith("--")]
        words = (word for word in self._given if word.startswith("--") and len(word) > 2)
        unknown = next((word for word in words if word.split("=")[0] not in known), None)
        return unknown if unknown is not None and _near(unknown.split("=")[0], known) else None


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        assert isinstance(parser, FlagParser)
        print(parser.format_help(whole=True), end="")
        parser.exit()


def script_parser(description: str | None) -> FlagParser:
    """The parser of a root script, with `--config`; its docstring is shown as it is written."""
    parser = FlagParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument(
        "--config",
        default=None,
        metavar="FILE",
        help="a recipe, for example configs/one_gpu.yaml; a flag wins over it",
    )
    return parser


def add_command(commands: Any, name: str, run: Callable[[Any], int], text: str) -> FlagParser:
    """A command or an action of `cuda-rl`; `run` gets the namespace and returns the exit status."""
    parser: FlagParser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(run=run, parser=parser)
    return parser


def add_actions(commands: Any, name: str, text: str) -> Any:
    """A command that only has actions, such as `cuda-rl tasks`."""
    parser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(parser=parser)
    return parser.add_subparsers(dest="action", metavar="ACTION", required=True)


def add_action(command: FlagParser, name: str, run: Callable[[Any], int], text: str) -> FlagParser:
    """An action of a command whose first word may also be something else, such as `cuda-rl eval`:
    it has arguments and help of its own."""
    parser = FlagParser(prog=f"{command.prog} {name}", description=text)
    parser.set_defaults(run=run, parser=parser)
    command.actions[name] = parser
    return parser


def add_flags(
    parser: argparse.ArgumentParser,
    config: type[BaseModel],
    fields: Iterable[str],
    *,
    spelled: Mapping[str, Sequence[str]] = {},
    choices: Mapping[str, Sequence[str]] = {},
    cpu: BaseModel | None = None,
) -> None:
    """A flag for each of the fields, in their order.

    spelled: flags of a field that is not spelled like it. choices: of a field whose values are data
    and not a Literal. cpu: the config of a machine without a GPU, where it has other defaults.
    """
    for name in fields:
        field = config.model_fields[name]
        flags = spelled.get(name, (f"--{name.replace('_', '-')}",))
        kind = {"choices": choices[name]} if name in choices else _kind(name, field)
        text = _help(name, field, cpu).replace("%", "%%")
        parser.add_argument(*flags, dest=name, help=text, default=argparse.SUPPRESS, **kind)
        if name == "sandbox":
            parser.add_argument(
                *NO_DOCKER,
                dest="no_docker",
                action="store_true",
                default=argparse.SUPPRESS,
                help="the same as --sandbox no-docker",
            )


def config_from(
    config: type[C], args: argparse.Namespace, only: Container[str] | None = None, **others: Any
) -> C:
    """The config with what the user gave and `others`. only: fields that are taken of what was
    given; None: all. Raises UsageError."""
    taken = config.model_fields if only is None else only
    given = {name: value for name, value in vars(args).items() if name in taken}
    try:
        return config(**given, **others)
    except ValidationError as e:
        raise UsageError(first_complaint(e)) from e


def add_switch(parser: argparse.ArgumentParser, flag: str, text: str) -> None:
    """A flag without a value, False unless it is given."""
    parser.add_argument(flag, action="store_true", default=False, help=text)


def add_path(
    parser: argparse.ArgumentParser,
    flag: str,
    metavar: str,
    text: str,
    default: Path | None = None,
    **settings: Any,
) -> None:
    """A flag that names a file or folder; its help tells the default."""
    told = text if default is None else f"{text} (default: {default})"
    parser.add_argument(
        flag, type=Path, metavar=metavar, help=told, **{"default": default, **settings}
    )


def add_json(parser: argparse.ArgumentParser, text: str) -> None:
    """`--json`: the output is for programs."""
    add_switch(parser, "--json", text)


# --- from a field to a flag -----------------------------------------------------------------------


def value_of(annotation: Any, *limits: Any) -> Callable[[str], Any]:
    """A parser of one value, for argparse: `value_of(int, Ge(1))`."""

    def parse(text: str) -> Any:
        wanted: Any = Annotated[(annotation, *limits)] if limits else annotation
        try:
            return TypeAdapter(wanted).validate_python(text)
        except ValidationError as e:
            shown = text if re.fullmatch(r"[\w.+-]+", text, re.ASCII) else repr(text)
            raise argparse.ArgumentTypeError(
                f"cannot be {shown}: give {_wanted(annotation, limits)}"
            ) from e

    return parse


def _kind(name: str, field: FieldInfo) -> dict[str, Any]:
    """The arguments of `add_argument` that say which values the flag takes."""
    kind = _without_none(field.annotation)
    if kind is bool:
        switch = field.default is False
        return {"action": "store_true" if switch else argparse.BooleanOptionalAction}
    if get_origin(kind) is Literal:
        return {"choices": get_args(kind)}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"choices": [member.value for member in kind]}
    if get_origin(kind) is tuple:
        return {"action": "append", "metavar": "KEY=VALUE"}
    metavar = {int: "N", float: "X", Path: "PATH"}.get(kind, name.rsplit("_", 1)[-1].upper())
    made = {"type": value_of(kind, *field.metadata), "metavar": metavar}
    return made | ({"required": True} if field.is_required() else {})


def _without_none(annotation: Any) -> Any:
    """X of `X | None`."""
    if get_origin(annotation) in (Union, UnionType):
        (kind,) = [a for a in get_args(annotation) if a is not type(None)]
        return kind
    return annotation


def _help(name: str, field: FieldInfo, cpu: BaseModel | None) -> str:
    text = " ".join((field.description or "").split("\n\n")[0].split())
    default, on_cpu = _shown(field.default), None
    if cpu is not None and getattr(cpu, name) != field.default:
        on_cpu = _shown(getattr(cpu, name))
    told = [d for d in (default, f"on a CPU: {on_cpu}" if on_cpu else None) if d is not None]
    if not told or not text:
        return text
    return f"{text.rstrip('.')} (default: {'; '.join(told)})"


def _shown(value: Any) -> str | None:
    """A default as help shows it; None where the docstring has to tell what happens."""
    if value is True:
        return "on"
    if isinstance(value, float):
        return f"{value:.10g}"
    return str(value) if value and isinstance(value, str | int) else None


def _wanted(annotation: Any, limits: Sequence[Any]) -> str:
    """Which numbers a field takes, in words: "a whole number from 1 to 16"."""
    if annotation not in (int, float):
        return "another value"
    words = {"ge": "of at least", "gt": "above", "le": "of at most", "lt": "below"}
    said = {key: getattr(x, key) for x in limits for key in words if hasattr(x, key)}
    kind = "a whole number" if annotation is int else "a number"
    if {"ge", "le"} <= set(said):
        return f"{kind} from {said['ge']:g} to {said['le']:g}"
    return " and ".join([kind, *(f"{words[k]} {v:g}" for k, v in said.items())]).replace(
        f"{kind} and", kind, 1
    )


# --- complaints -----------------------------------------------------------------------------------


def _sentence(parser: argparse.ArgumentParser, message: str) -> str:
    """argparse's complaint as one sentence with the choices."""
    value = re.match(r"argument (?P<flag>\S+): (?P<what>cannot be .*)$", message, re.DOTALL)
    if value:
        return f"{value['flag'].split('/')[0]} {value['what']}"
    choice = re.match(
        r"argument (?P<what>\S+): invalid choice: (?P<got>.*?) \(choose from (?P<of>.*)\)$",
        message,
        re.DOTALL,
    )
    if choice:
        what, got = choice["what"], choice["got"].strip("'")
        choices = choice["of"].replace("'", "").split(", ")
        close = get_close_matches(got, choices, n=1)
        hint = f"did you mean {close[0]}? there are" if close else "choose one of"
        if what in ("COMMAND", "ACTION"):
            return f"`{parser.prog}` has no command {got!r}: {hint} {', '.join(choices)}"
        return f"{what.split('/')[-1]} cannot be {got!r}: {hint} {', '.join(choices)}"
    if message.endswith(("COMMAND", "ACTION")) and "required" in message:
        actions = next(a for a in parser._actions if a.choices and a.dest in ("command", "action"))
        choices = ", ".join(str(c) for c in actions.choices or ())
        return f"a command is missing after `{parser.prog}`: choose one of {choices}"
    return f"{message} (see `{parser.prog} --help`)"


def _unknown_argument(parser: argparse.ArgumentParser, got: str) -> str:
    every = [s for a in parser._actions for s in a.option_strings if s.startswith("--")]
    flags = [flag for flag in every if flag != ALL]
    name = got.split("=")[0]
    if not name.startswith("-"):
        return f"`{parser.prog}` takes no further argument {got!r}: remove it"
    places = {str(a.metavar).lower(): a for a in parser._get_positional_actions()}
    if name.removeprefix("--") in places:
        place = places[name.removeprefix("--")].metavar
        return f"{name} is no flag of `{parser.prog}`: give {place} alone, without {name}"
    near = _near(name, flags)
    said = f"`{parser.prog}` has no flag {name!r}"
    if len(flags) <= SHOWN_FLAGS:
        hint = f"did you mean {near[0]}? there are" if near else "there are"
        return f"{said}: {hint} {', '.join(flags)}"
    hint = f"did you mean {' or '.join(near)}?" if near else "see its help"
    return f"{said}: {hint} (`{parser.prog} {ALL}` lists all {len(flags)})"


def _near(name: str, flags: Sequence[str]) -> list[str]:
    """Up to three flags that are spelled like it, or have it as one of their words."""
    words = {flag.removeprefix("--"): flag for flag in flags}
    close = get_close_matches(name.removeprefix("--"), words, n=3)
    within = [word for word in words if name.removeprefix("--") in word.split("-")]
    return [words[word] for word in dict.fromkeys([*close, *within])][:3]
