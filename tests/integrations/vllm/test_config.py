"""Where settings come from, which source wins, and how wrong ones are refused."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sidedraft.integrations.vllm import aliases
from sidedraft.integrations.vllm.config import ConfigurationError, VllmSettings, load
from sidedraft.transport.keys import write_pair
from support.vllm_stub import vllm_config

ADDRESS = "ipc:///run/sidedraft/draft.sock"


def engine(section: Any = None, method: str = "dspark", additional: Any = None) -> Any:
    """A vLLM configuration, as far as it is looked at."""
    if additional is None:
        additional = {} if section is None else {"sidedraft": section}
    return vllm_config(target="t", draft="d", method=method, depth=4, taps=None, additional_config=additional)


def errors(environ: Mapping[str, str], section: Any = None, method: str = "dspark") -> str:
    with pytest.raises(ConfigurationError) as error:
        load(engine(section, method), environ)
    return str(error.value)


@pytest.fixture(autouse=True)
def _forget_warnings() -> None:
    aliases._say_deprecated.cache_clear()


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"SIDEDRAFT_ADDRESS": ""},
        {"SIDEDRAFT_SERVICE_HOST": "10.0.0.7", "SIDEDRAFT_PORT": "tcp://10.0.0.7:80"},  # Kubernetes
        {"VLLM_K3_DRAFT_REMOTE_TIMEOUT_MS": "30000"},  # means nothing without an address, as in the fork
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "additional", [{}, {"other": 1}, {"sidedraft": {}}, "an object of another plugin"], ids=str
)
def test_nothing_configured_is_none(environ: dict[str, str], additional: Any) -> None:
    assert load(engine(additional=additional), environ) is None


def test_without_speculation_there_is_nothing_to_configure() -> None:
    config = SimpleNamespace(speculative_config=None, additional_config={})
    assert load(config, {"SIDEDRAFT_ADDRESS": ADDRESS}) is None


def test_an_address_is_enough() -> None:
    expected = VllmSettings(address=ADDRESS)
    assert load(engine(), {"SIDEDRAFT_ADDRESS": ADDRESS}) == expected
    assert load(engine({"address": ADDRESS}, method="dflash"), {}) == expected


def test_every_setting_is_read_from_variables(tmp_path: Path) -> None:
    _, _, server_key = write_pair(tmp_path, "server")
    _, client_key, _ = write_pair(tmp_path, "engine")
    environ = {
        "SIDEDRAFT_ADDRESS": "tcp://10.0.0.7:7000",
        "SIDEDRAFT_INSECURE_PLAIN_TEXT": "0",
        "SIDEDRAFT_SERVER_KEY": str(server_key),
        "SIDEDRAFT_CLIENT_KEY": str(client_key),
        "SIDEDRAFT_DEADLINE_MS": "12.5",
        "SIDEDRAFT_LABEL": "left",
        "SIDEDRAFT_NAMESPACE": "tenant-a",
        "SIDEDRAFT_STRICT_IDENTITY": "true",
        "SIDEDRAFT_ROW_FORMATS": "projected-fp8, fp8",
        "SIDEDRAFT_SHARING": "false",
        "SIDEDRAFT_FEATURES": "one, two",
        "SIDEDRAFT_TIMING_LOG_INTERVAL": "100",
    }
    settings = load(engine(), environ)
    assert settings == VllmSettings(
        address="tcp://10.0.0.7:7000",
        insecure_plain_text=False,
        server_key=str(server_key),
        client_key=str(client_key),
        deadline_ms=12.5,
        label="left",
        namespace="tenant-a",
        strict_identity=True,
        row_formats=("projected-fp8", "fp8"),
        sharing=False,
        features=("one", "two"),
        timing_log_interval=100,
    )
    assert set(environ) == {f"SIDEDRAFT_{name.upper()}" for name in VllmSettings.__struct_fields__}


def test_keys_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    _, client_key, _ = write_pair(tmp_path, "engine")
    _, _, server_key = write_pair(tmp_path, "server")
    far = {"SIDEDRAFT_ADDRESS": "tcp://10.0.0.7:7000"}
    assert "client_key: None" in errors(far | {"SIDEDRAFT_SERVER_KEY": str(server_key)})
    both = far | {"SIDEDRAFT_SERVER_KEY": str(server_key), "SIDEDRAFT_CLIENT_KEY": str(client_key)}
    assert "either keys or plain text" in errors(both | {"SIDEDRAFT_INSECURE_PLAIN_TEXT": "1"})
    client_key.chmod(0o644)
    said = errors(both)
    assert f"'{client_key}' is not allowed" in said
    assert "found mode 0644" in said
    assert len(said.splitlines()) == 1


def test_the_drafter_gets_its_part() -> None:
    settings = VllmSettings(address=ADDRESS, deadline_ms=250, strict_identity=True, sharing=False).verifier()
    assert (settings.deadline, settings.strict_identity, settings.sharing) == (0.25, True, False)
    assert VllmSettings(address=ADDRESS).verifier().deadline is None


def test_the_command_line_wins_over_variables_and_both_over_the_old_names() -> None:
    environ = {
        "VLLM_K3_DRAFT_REMOTE_ADDRESS": "tcp://127.0.0.1:1",
        "VLLM_K3_DRAFT_REMOTE_TIMEOUT_MS": "1",
        "SIDEDRAFT_ADDRESS": "tcp://127.0.0.1:2",
        "SIDEDRAFT_LABEL": "variable",
    }
    settings = load(engine({"address": "tcp://127.0.0.1:3"}), environ)
    assert settings == VllmSettings(address="tcp://127.0.0.1:3", deadline_ms=1, label="variable")


def test_everything_wrong_is_said_at_once_under_the_name_it_was_given() -> None:
    said = errors(
        {"SIDEDRAFT_ADDRESS": "http://host", "SIDEDRAFT_DEADLINE_MS": "soon", "SIDEDRAFT_LABLE": "x"},
        {"namespace": "a b", "strict_identity": 3, "adress": ADDRESS},
        method="ngram",
    )
    head, *lines = said.splitlines()
    assert "7 settings" in head
    for name in (
        "SIDEDRAFT_ADDRESS: 'http://host'",
        "SIDEDRAFT_DEADLINE_MS: 'soon'",
        "SIDEDRAFT_LABLE: 'x' is not allowed; expected the name SIDEDRAFT_LABEL",
        "additional_config sidedraft.namespace: 'a b'",
        "additional_config sidedraft.strict_identity: 3",
        "additional_config sidedraft.adress",
        "speculative_config.method: 'ngram' is not allowed; expected one of dspark, dflash",
    ):
        assert sum(name in line for line in lines) == 1, name


@pytest.mark.parametrize(
    ("environ", "section", "said"),
    [
        ({"SIDEDRAFT_ADDRESS": "http://host"}, None, "SIDEDRAFT_ADDRESS: 'http://host'"),
        ({"SIDEDRAFT_ADDRESS": "tcp://10.0.0.7:7000"}, None, "insecure_plain_text"),
        ({"SIDEDRAFT_ADDRESS": "tcp://127.0.0.1:0"}, None, "port"),
        ({"SIDEDRAFT_LABEL": "x"}, None, "SIDEDRAFT_ADDRESS: None"),
        ({"SIDEDRAFT_ADRESS": ADDRESS}, None, "SIDEDRAFT_ADDRESS"),
        ({}, ADDRESS, "a table of settings"),
        ({"VLLM_K3_DRAFT_REMOTE_ADDRESS": "host:1"}, None, "VLLM_K3_DRAFT_REMOTE_ADDRESS: 'host:1'"),
    ],
)
def test_a_wrong_setting_is_named(environ: dict[str, str], section: Any, said: str) -> None:
    assert said in errors(environ, section)


def test_one_error_is_one_line() -> None:
    (line,) = errors({"SIDEDRAFT_ADDRESS": "http://host"}).splitlines()
    assert line.startswith("sidedraft: SIDEDRAFT_ADDRESS: ")


@pytest.mark.parametrize("prefix", aliases.PREFIXES)
def test_the_forks_variables_are_understood(prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    environ = {
        prefix + "ADDRESS": "tcp://127.0.0.1:5555",
        prefix + "TIMEOUT_MS": "250",
        prefix + "ASYNC_PREFILL_INGEST": "2",
        prefix + "TIMING_LOG_INTERVAL": "7",
    }
    with caplog.at_level(logging.WARNING):
        settings = load(engine(), environ)
        load(engine(), environ)
    assert settings == VllmSettings(address="tcp://127.0.0.1:5555", deadline_ms=250, timing_log_interval=7)
    (record,) = caplog.records  # once a process
    assert "\n" not in record.message
    for variable in environ:
        assert variable in record.message
    assert "SIDEDRAFT_DEADLINE_MS" in record.message


def test_the_forks_dspark_variables_are_for_dspark() -> None:
    environ = {"VLLM_K3_DSPARK_REMOTE_ADDRESS": "tcp://127.0.0.1:5555"}
    assert load(engine(method="dflash"), environ) is None
    assert load(engine(method="dspark"), environ) is not None


def test_the_forks_general_address_goes_first() -> None:
    environ = {
        "VLLM_K3_DSPARK_REMOTE_ADDRESS": "tcp://127.0.0.1:1",
        "VLLM_K3_DRAFT_REMOTE_ADDRESS": "tcp://127.0.0.1:2",
    }
    settings = load(engine(), environ)
    assert settings is not None
    assert settings.address == "tcp://127.0.0.1:2"


def test_our_own_variables_are_not_deprecated(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load(engine(), {"SIDEDRAFT_ADDRESS": ADDRESS})
    assert not caplog.records


def test_what_does_not_go_together_with_a_server_is_refused_with_the_rest() -> None:
    config = engine()
    config.speculative_config.enable_adaptive_verification = True
    config.speculative_config.use_heterogeneous_vocab = True
    config.parallel_config.prefill_context_parallel_size = 2
    config.watermark_config = object()
    with pytest.raises(ConfigurationError) as caught:
        load(config, {"SIDEDRAFT_ADDRESS": ADDRESS, "SIDEDRAFT_DEADLINE_MS": "-1"})
    assert {error.field for error in caught.value.errors} == {
        "SIDEDRAFT_DEADLINE_MS",
        "speculative_config.enable_adaptive_verification",
        "speculative_config.use_heterogeneous_vocab",
        "prefill_context_parallel_size",
        "watermark_config",
    }
    assert "True is not allowed; expected false with a draft server" in str(caught.value)


def test_probabilistic_drafts_are_no_obstacle() -> None:
    config = engine()
    config.speculative_config.draft_sample_method = "probabilistic"
    assert load(config, {"SIDEDRAFT_ADDRESS": ADDRESS}) is not None
