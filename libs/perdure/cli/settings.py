"""The settings of a training, as its schema knows them."""

from typing import Any, Final

from perdure.cli.output import complain_line, print_json, print_table
from perdure.training.config import MODELS, TrainConfig

# More than these would fill the table; the meaning tells of them, and --json lists them.
MAX_SHOWN_CHOICES: Final = 4
_TYPES: Final = {"integer": "whole number", "number": "number", "boolean": "true or false"}


def default_of(key: str) -> str:
    """The default of a setting as a remark, e.g. " (default 50)"."""
    return f" (default {TrainConfig.model_fields[key].default})"


def described() -> list[dict[str, Any]]:
    """All settings: `name`, `type`, `choices`, `default`, `derived` (whether the default follows
    other settings), `range` and `meaning`; what does not apply is None.
    """
    defaults = TrainConfig.from_pairs({}).model_dump(mode="json")
    schema = TrainConfig.model_json_schema()["properties"]
    return [_setting(key, schema[key], defaults[key]) for key in TrainConfig.keys()]  # noqa: SIM118


def _setting(key: str, schema: dict[str, Any], default: Any) -> dict[str, Any]:
    kinds = schema.get("anyOf", [schema])
    words = [kind["const"] for kind in kinds if "const" in kind]
    numeric: dict[str, Any] = next((kind for kind in kinds if kind.get("type") in _TYPES), {})
    choices = list(MODELS) if key == "model" else schema.get("enum")
    kind = _TYPES.get(numeric.get("type", ""), "text")
    return {
        "name": key,
        "type": " or ".join([*words, kind]),
        "choices": choices,
        "default": default,
        "derived": TrainConfig.model_fields[key].default_factory is not None,
        "range": _range(numeric),
        "meaning": TrainConfig.model_fields[key].description,
    }


def _range(schema: dict[str, Any]) -> str | None:
    bounds = {
        "minimum": "from {}",
        "exclusiveMinimum": "above {}",
        "maximum": "to {}",
        "exclusiveMaximum": "below {}",
    }
    return (
        " ".join(words.format(schema[key]) for key, words in bounds.items() if key in schema)
        or None
    )


def print_settings(*, as_json: bool) -> None:
    """Print all settings."""
    settings = described()
    if as_json:
        print_json(settings)
        return
    print_table(
        ("NAME", "TYPE", "DEFAULT", "MEANING"),
        (
            (
                setting["name"],
                _kind(setting),
                f"{_shown(setting['default'])}{'*' if setting['derived'] else ''}",
                setting["meaning"] or setting["range"],  # the meaning names the range
            )
            for setting in settings
        ),
        empty="",
    )
    complain_line("* follows other settings: this is its value when they have their defaults")


def _kind(setting: dict[str, Any]) -> str:
    choices = setting["choices"]
    return (
        " or ".join(choices) if choices and len(choices) <= MAX_SHOWN_CHOICES else setting["type"]
    )


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
