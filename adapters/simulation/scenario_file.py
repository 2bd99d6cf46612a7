"""Reading scenario files: YAML with places, so that every mistake is told with its line.

The form is that of `docs/scenarios.md`. Nothing is ignored: an unknown step, key or name is an
error that says what was probably meant.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from adapters.simulation.steps import STEPS
from adapters.simulation.steps.readers import cycle, name, span_seconds, whole
from adapters.simulation.steps.registry import EXPECTATIONS, Step
from ledger.domain.ids import parse_rfc3339
from ledger.domain.money import parse_fee
from ledger.errors import RejectedError


class ScenarioError(Exception):
    """A file that is not a valid scenario: where, what is wrong, and what was probably meant."""

    def __init__(self, path: Path, line: int, message: str) -> None:
        """Name the *path* and the *line* (from 1)."""
        super().__init__(f"{path}:{line}: {message}")
        self.path = path
        self.line = line


class Located(dict[str, Any]):
    """A mapping that knows the line it begins on, and those of its keys."""

    line: int = 0
    lines: Mapping[str, int] = {}


class _Loader(yaml.SafeLoader):
    """Plain YAML, without timestamps, floats and repeated keys."""


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> Located:
    result = Located()
    result.line = node.start_mark.line + 1
    lines = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} is not a name", key_node.start_mark
            )
        if key in result:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} stands here twice", key_node.start_mark
            )
        result[key] = loader.construct_object(value_node, deep=True)
        lines[key] = key_node.start_mark.line + 1
    result.lines = lines
    return result


_add: Any = _Loader.add_constructor  # its stub wants the base class of every loader
_add("tag:yaml.org,2002:map", _mapping)
_add("tag:yaml.org,2002:timestamp", yaml.SafeLoader.construct_yaml_str)


@dataclass(frozen=True)
class Scenario:
    """A whole file."""

    path: Path
    name: str
    settings: Mapping[str, Any]
    steps: list[Step]
    expect: Located = field(default_factory=Located)


_SETTINGS: Final = {
    "platform_fee": "0.15",
    "report_seconds": 10,
    "boot": 0,
    "admission": "on",
    "late_usage_hours": 72,
    "billing": "monthly",
    "admit_waiting_bids": "off",
}


def read(path: Path) -> Scenario:
    """The scenario in a file.

    Raises:
        ScenarioError: It is not one; the message names file, line and mistake.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(path, 1, f"cannot be read: {error}") from error
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader of our own
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ScenarioError(path, line, f"{error.problem}") from error
    except yaml.YAMLError as error:
        raise ScenarioError(path, 1, f"is not YAML: {error}") from error
    return _Reading(path).scenario(document)


class _Reading:
    """Reads one document, failing at the first mistake."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._second: int | None = None

    def _fail(self, line: int, message: str) -> ScenarioError:
        return ScenarioError(self._path, line, message)

    def scenario(self, document: Any) -> Scenario:
        if not isinstance(document, Located):
            raise self._fail(1, "a scenario is a mapping with `scenario`, `steps` and `expect`")
        self._known(document, {"scenario", "settings", "steps", "expect"}, "key")
        if not isinstance(document.get("scenario"), str):
            raise self._fail(document.line, "`scenario` must say in a sentence what is true")
        settings = self._settings(document.get("settings"), document)
        steps = document.get("steps")
        if not isinstance(steps, list) or not steps:
            line = document.lines.get("steps", document.line)
            raise self._fail(line, "`steps` must be a list of at least one step")
        read_steps = [self._step(number, step, document) for number, step in enumerate(steps, 1)]
        expect = document.get("expect", Located())
        self.expectations(expect, document.lines.get("expect", document.line))
        return Scenario(self._path, document["scenario"], settings, read_steps, expect)

    def _settings(self, given: Any, document: Located) -> dict[str, Any]:
        settings: dict[str, Any] = dict(_SETTINGS)
        if given is None:
            given = Located()
        if not isinstance(given, Located):
            raise self._fail(document.lines["settings"], "`settings` must be a mapping")
        self._known(given, set(_SETTINGS), "setting")
        for key, value in given.items():
            line = given.lines[key]
            try:
                settings[key] = _setting(key, value)
            except (ValueError, RejectedError) as error:
                raise self._fail(line, f"`{key}`: {error}") from error
        settings["fee_bp"] = parse_fee(settings["platform_fee"])
        return settings

    def _step(self, number: int, step: Any, document: Located) -> Step:
        if not isinstance(step, Located):
            raise self._fail(document.lines["steps"], f"step {number} is not a mapping")
        do = step.get("do")
        if not isinstance(do, str) or do not in STEPS:
            hint = _meant(str(do), set(STEPS))
            raise self._fail(step.line, f"there is no step `{do}`{hint}")
        required, optional, _, lasts = STEPS[do]
        common = {"do", "at", "refused"}
        if do == "expect":
            self._known(step, EXPECTATIONS | {"do", "at"}, "expectation")
        else:
            self._known(step, common | required.keys() | optional.keys(), f"key of `{do}`")
        for key in required:
            if key not in step:
                raise self._fail(step.line, f"`{do}` needs `{key}`")
        values = {}
        for key, reader in {**required, **optional}.items():
            if key in step:
                try:
                    values[key] = reader(step[key])
                except ValueError as error:
                    raise self._fail(step.lines[key], f"`{key}`: {error}") from error
        at = self._at(step)
        for key, value in values.items():
            seconds = span_seconds(value) if key in {"from", "until"} else None
            if seconds is not None:
                values[key] = at + seconds
        refused = step.get("refused")
        if refused is not None and not isinstance(refused, str):
            raise self._fail(step.lines["refused"], "`refused` must be an error code")
        if do == "expect":
            expected = Located(values)
            expected.lines = step.lines
            self.expectations(expected, step.line)
            values = {"expect": expected}
        if lasts is not None:
            self._second = at + lasts(values)
        return Step(number, step.line, at, do, values, refused)

    def _at(self, step: Located) -> int:
        given = step.get("at")
        line = step.lines.get("at", step.line)
        if given is None:
            if self._second is None:
                raise self._fail(line, "the first step needs `at`, an instant")
            return self._second
        seconds = span_seconds(given)
        if seconds is not None and self._second is not None:
            if seconds < 0:
                raise self._fail(line, "steps are in time order")
            self._second += seconds
            return self._second
        try:
            second = parse_rfc3339(given) if isinstance(given, str) else None
        except ValueError:
            second = None
        if second is None:
            message = f"`at`: {given!r} is neither an instant like 2026-03-01T10:00:00Z nor +90s"
            raise self._fail(line, message)
        if self._second is not None and second < self._second:
            raise self._fail(line, "steps are in time order; this one lies before the last")
        self._second = second
        return second

    def expectations(self, expect: Any, line: int) -> None:
        """Check the keys of an `expect`."""
        if not isinstance(expect, Located):
            raise self._fail(line, "`expect` must be a mapping")
        self._known(expect, EXPECTATIONS, "expectation")

    def _known(self, mapping: Located, known: set[str], what: str) -> None:
        for key in mapping:
            if key not in known:
                hint = _meant(key, known)
                raise self._fail(mapping.lines[key], f"there is no {what} `{key}`{hint}")


def _setting(key: str, value: Any) -> Any:
    if key in {"report_seconds", "boot", "late_usage_hours"}:
        number = whole(value)
        if key == "report_seconds" and not 1 <= number <= 300:  # noqa: PLR2004 - limit of a report
            message = "a report covers 1 to 300 seconds"
            raise ValueError(message)
        return number
    if key in {"admission", "admit_waiting_bids"}:
        value = {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value
        if value not in {"on", "off"}:
            message = 'is "on" or "off"'
            raise ValueError(message)
        return value
    if key == "billing":
        return cycle(value)
    parse_fee(name(value))
    return value


def _meant(given: str, known: set[str]) -> str:
    close = difflib.get_close_matches(given, sorted(known), n=1)
    if close:
        return f"; did you mean `{close[0]}`?"
    return f"; known are {', '.join(sorted(known))}"
