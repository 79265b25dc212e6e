"""The settings: one list, three sources, one effect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from antiphon.cli.options import GROUPS, LLAMA_CPP_ALWAYS, LLAMA_CPP_NAMES, read_settings, value_type
from antiphon.cli.serve import serve
from antiphon.engines.registry import build_registry
from antiphon.errors import ConfigurationError
from antiphon.settings import FIELDS, Field, ModelConfig, Settings, load_settings

SETTABLE = [field for field in FIELDS if not field.in_file_only]
SPECIAL: Mapping[str, Any] = {
    "dialect": "openresponses",
    "reasoning_alias_field": "none",
    "log_level": "debug",
    "web_search": "searxng",
    "log_format": "json",
    "alias": ["gpt-5=scripted", "o3=scripted"],
    "max_vector_bytes": 2_097_152,
}


def sample(field: Field) -> Any:
    """A value that the setting takes and that is not its default."""
    if field.name in SPECIAL:
        return SPECIAL[field.name]
    plain = value_type(field.type)
    value: Any = {bool: True, int: 2048, float: 2.5, str: "some-text"}[plain]
    if field.name == "slots":
        value = 7
    return [value, "other-text"] if field.repeatable else value


def from_flags(*arguments: str) -> Settings:
    context = serve.make_context("serve", list(arguments))
    return read_settings(context.params)


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in FIELDS:
        for name in field.environment:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("ANTIPHON_CONFIG", raising=False)


@pytest.mark.requirement("settings:sources")
@pytest.mark.parametrize("field", SETTABLE, ids=lambda field: field.name)
def test_flag_environment_and_file_have_the_same_effect(field: Field, tmp_path: Path) -> None:
    value = sample(field)
    values = value if isinstance(value, list) else [value]
    flags = [field.flag] if value is True else [part for one in values for part in (field.flag, str(one))]
    text = "true" if value is True else ",".join(str(one) for one in values)
    file = tmp_path / "antiphon.toml"
    model = "" if field.name == "model" else 'model = "scripted"\n'
    file.write_text(f"{model}{field.name} = {json.dumps(value)}\n")

    by_flag = getattr(from_flags(*flags), field.name)
    assert by_flag == getattr(load_settings(environment={field.environment[0]: text}), field.name)
    assert by_flag == getattr(load_settings(environment={}, config=file), field.name)
    assert by_flag == (tuple(value) if isinstance(value, list) else value)
    assert by_flag != field.default


@pytest.mark.requirement("settings:llama-cpp")
@pytest.mark.parametrize(("name", "flags"), LLAMA_CPP_NAMES.items(), ids=LLAMA_CPP_NAMES)
def test_the_flags_of_llama_cpp_set_what_both_have(name: str, flags: tuple[str, ...]) -> None:
    (field,) = [field for field in FIELDS if field.name == name]
    value = sample(field)
    value = value[0] if isinstance(value, list) else value
    expected = getattr(from_flags(field.flag, str(value)), name)
    assert expected != field.default
    for flag in flags:
        assert getattr(from_flags(flag, str(value)), name) == expected


@pytest.mark.requirement("settings:llama-cpp")
def test_a_command_line_of_llama_cpp_starts_the_same_server() -> None:
    line = "-m a.gguf -c 4096 -np 2 -t 3 -ngl 99 -b 512 --api-key k --api-key-file f --host ::1 --port 1 -a gpt-x"
    ours = (
        "--model a.gguf --context-length 4096 --slots 2 --threads 3 --gpu-layers 99 --batch-size 512 --api-key k "
        "--api-key-file f --host ::1 --port 1 --alias gpt-x"
    )
    assert from_flags(*line.split()) == from_flags(*ours.split())
    longer = "--model a.gguf --ctx-size 4096 --parallel 2 --threads 3 --n-gpu-layers 99 --batch-size 512"
    assert from_flags(*longer.split()) == from_flags(*ours.partition(" --api-key")[0].split())


@pytest.mark.requirement("settings:llama-cpp")
def test_flags_of_llama_cpp_for_what_is_always_so_are_taken_and_change_nothing() -> None:
    for flag in ("--jinja", "--metrics", "-cb", "--cont-batching"):
        assert flag in LLAMA_CPP_ALWAYS
        assert from_flags(flag, "-c", "4096") == from_flags("-c", "4096")
    with pytest.raises(click.UsageError, match="--no-such-flag"):
        from_flags("--no-such-flag")


@pytest.mark.requirement("settings:llama-cpp")
def test_a_bare_alias_is_a_name_of_the_only_model() -> None:
    registry = build_registry(Settings(model=("scripted",), alias=("gpt-x",)))
    assert registry.names() == ["scripted", "gpt-x"]
    assert registry.resolve("gpt-x")[1] is registry.engines[0]
    for settings in (
        Settings(model=("scripted", "other.gguf"), alias=("gpt-x",)),
        Settings(model=("scripted",), alias=("=scripted",)),
        Settings(model=("scripted",), alias=("x=unknown",)),
    ):
        with pytest.raises(ConfigurationError, match="NAME=MODEL is expected"):
            build_registry(settings)


@pytest.mark.requirement("settings:sources")
def test_a_boolean_is_switched_off_by_flag_and_environment(tmp_path: Path) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text('model = "scripted"\nallow_unauthenticated = true\n')
    assert from_flags("--config", str(file)).allow_unauthenticated
    assert not from_flags("--config", str(file), "--no-allow-unauthenticated").allow_unauthenticated
    off = {"ANTIPHON_ALLOW_UNAUTHENTICATED": "false"}
    assert not load_settings(environment=off, config=file).allow_unauthenticated


@pytest.mark.requirement("settings:sources")
def test_models_are_tables_of_the_file_only(tmp_path: Path) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text('[[models]]\npath = "a.gguf"\nname = "a"\naliases = ["b"]\n')
    (model,) = load_settings(environment={}, config=file).models
    assert (model.path, model.name, model.aliases) == ("a.gguf", "a", ("b",))


@pytest.mark.requirement("settings:models")
def test_only_the_models_of_a_file_with_tables_are_served(tmp_path: Path) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text('port = 1\n[[models]]\npath = "scripted"\nname = "a"\n')
    settings = load_settings(environment={"ANTIPHON_MODEL": "scripted"}, config=file)
    assert settings.model == ()
    assert build_registry(settings).names() == ["a"]
    with pytest.raises(ConfigurationError, match="leave --model out"):
        load_settings({"model": ("scripted",)}, {}, file)


@pytest.mark.requirement("settings:models")
def test_a_file_without_models_leaves_them_to_the_flags(tmp_path: Path) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text("port = 1\n")
    settings = load_settings({"model": ("scripted",)}, {}, file)
    assert (settings.port, build_registry(settings).names()) == (1, ["scripted"])


@pytest.mark.requirement("settings:order")
def test_flags_win_over_the_environment_and_the_environment_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text('model = "scripted"\nport = 1001\nslots = 11\nthreads = 21\n')
    monkeypatch.setenv("ANTIPHON_CONFIG", str(file))
    monkeypatch.setenv("ANTIPHON_SLOTS", "12")
    monkeypatch.setenv("ANTIPHON_THREADS", "22")
    settings = from_flags("--threads", "23")
    assert (settings.port, settings.slots, settings.threads) == (1001, 12, 23)


@pytest.mark.requirement("settings:aliases")
@pytest.mark.parametrize("field", [field for field in FIELDS if field.aliases], ids=lambda field: field.name)
def test_the_names_of_others_are_read_and_ours_win(field: Field) -> None:
    ours, theirs = field.environment
    first, second = ("5", "6") if value_type(field.type) is int else ("https://a.example", "https://b.example")
    if field.name in SPECIAL:
        first, second = str(field.default), SPECIAL[field.name]
    one = getattr(load_settings(environment={theirs: first}), field.name)
    assert str(one) == first
    both = getattr(load_settings(environment={theirs: first, ours: second}), field.name)
    assert str(both) == second


@pytest.mark.requirement("settings:errors")
@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"ANTIPHON_PORT": "70000"}, "port"),
        ({"ANTIPHON_SLOTS": "many"}, "slots"),
        ({"ANTIPHON_DIALECT": "klingon"}, "dialect"),
        ({"ANTIPHON_KEEP_ALIVE_SECONDS": "0"}, "keep_alive_seconds"),
    ],
)
def test_a_value_that_cannot_be_used_names_its_setting(environment: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        load_settings(environment=environment)


@pytest.mark.requirement("settings:errors")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('model = "scripted"\nprot = 1\n', "unknown key 'prot'"),
        ("model = ", "is not TOML"),
        ('model = "\udcff"\n', "is not TOML"),
        ('[[models]]\npath = "a.gguf"\nnaem = "a"\n', "naem"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_fault(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigurationError, match=words):
        load_settings(environment={}, config=file)


@pytest.mark.requirement("project:settings")
@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_every_setting_says_what_it_is(field: Field) -> None:
    assert len(field.description) > 10
    assert field.description.endswith(".")


@pytest.mark.requirement("project:settings")
def test_every_setting_is_an_option_of_serve_under_a_heading() -> None:
    named = {name for names in GROUPS.values() for name in names}
    options = {param.name for param in serve.params if isinstance(param, click.Option)}
    assert named == {field.name for field in SETTABLE}
    assert options == named | {"config", "always"}


@pytest.mark.requirement("reasoning:template-kwargs")
def test_variables_of_a_model_stand_before_those_of_the_server() -> None:
    def defaults(model: ModelConfig, text: str | None) -> Mapping[str, Any]:
        return build_registry(Settings(models=(model,), chat_template_kwargs=text)).engines[0].template_defaults

    own = ModelConfig("scripted", chat_template_kwargs={"x": 1})
    assert defaults(own, '{"x": 2, "y": [true]}') == {"x": 1, "y": [True]}
    assert defaults(ModelConfig("scripted"), '{"x": 2}') == {"x": 2}
    assert defaults(ModelConfig("scripted"), None) == {}


@pytest.mark.requirement("reasoning:template-kwargs")
@pytest.mark.parametrize("text", ["x", "[1]", "{", '"a"'])
def test_variables_that_are_no_object_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--chat-template-kwargs: a JSON object"):
        build_registry(Settings(model=("scripted",), chat_template_kwargs=text))


@pytest.mark.requirement("reasoning:template-kwargs")
def test_a_table_of_a_model_holds_its_variables(tmp_path: Path) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text('[[models]]\npath = "scripted"\nchat_template_kwargs = { enable_thinking = false }\n')
    assert load_settings({}, {}, file).models[0].chat_template_kwargs == {"enable_thinking": False}
