"""What an operator can set: `SIDEDRAFT_*` variables and the `sidedraft` part of vLLM's additional_config.

The command line wins over variables, variables over the old names that the reference fork gave them.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from sidedraft.integrations.vllm import aliases
from sidedraft.integrations.vllm.given import Given
from sidedraft.integrations.vllm.unsupported import unsupported
from sidedraft.settings import Settings, SettingsError, VerifierSettings, build, check_each
from sidedraft.settings.keys import KeyFile, check_keys
from sidedraft.settings.verifier import RowFormats
from sidedraft.transport.address import AddressError, for_connecting, parse_address
from sidedraft.transport.keys import KeyFileError, read_verifier_keys

PREFIX = "SIDEDRAFT_"
SECTION = "sidedraft"
METHODS = ("dspark", "dflash")
"""`method` of vLLM's speculative config for which drafts may come from a server."""

_LISTS = frozenset({"features", "row_formats"})
"""Settings that a variable gives as names with commas between."""

_SIMILAR = 0.8
"""`difflib` ratio above which an unknown variable is taken for a misspelt setting. Other variables with the
prefix are none of ours: Kubernetes makes some (`SIDEDRAFT_SERVICE_HOST`) for a service of that name."""

Name = Annotated[
    str,
    Meta(pattern=r"^[A-Za-z0-9._-]{1,64}$", description="a name of 1 to 64 letters, digits, '.', '_', '-'"),
]


class VllmSettings(Settings, frozen=True, kw_only=True):
    """Everything about remote drafts that is not already in vLLM's speculative config."""

    address: Annotated[str, Meta(min_length=1, description="ipc://PATH or tcp://HOST:PORT")]
    """Of the draft server."""
    insecure_plain_text: bool = False
    """Allow a server on another host, without encryption."""
    server_key: KeyFile | None = None
    """File with the server's public key: encrypt, and speak with no other server."""
    client_key: KeyFile | None = None
    """File with this engine's own secret key."""
    deadline_ms: (
        Annotated[float, Meta(gt=0, le=3_600_000, description="milliseconds, above 0 and at most 3600000")]
        | None
    ) = None
    """Longest wait for a step's drafts; None adapts it to what the server was seen to need."""
    label: Name = "vllm"
    """Shown in the server's status and metrics."""
    namespace: Name = "default"
    """Verifiers of one namespace share context on the server."""
    row_formats: RowFormats = ()
    """Preferred formats of rows, best first; those of the target's dtype follow."""
    sharing: bool = True
    """Context may be found by other requests and taken over from them."""
    strict_identity: bool = False
    """Refuse a server whose target is only partly known to be this one."""
    features: Annotated[tuple[Name, ...], Meta(max_length=64, description="a list of names")] = ()
    """Optional parts of the protocol to offer."""
    timing_log_interval: Annotated[int, Meta(ge=0, description="a count of steps, 0 for none")] = 0
    """Steps between two log lines with the times of the stages."""

    def check(self) -> None:
        check_keys(self.server_key, self.client_key, insecure_plain_text=self.insecure_plain_text)
        open_to_others = self.insecure_plain_text or self.server_key is not None
        try:
            for_connecting(parse_address(self.address, open_to_others=open_to_others))
        except AddressError as error:
            raise SettingsError("address", self.address, error.expected) from None
        try:
            read_verifier_keys(self.server_key, self.client_key)
        except KeyFileError as error:
            raise SettingsError("keys", error.path, f"{error.expected}; found {error.found}") from None

    def verifier(self) -> VerifierSettings:
        """The part that the drafter takes."""
        return VerifierSettings(
            deadline=None if self.deadline_ms is None else self.deadline_ms / 1000,
            row_formats=self.row_formats,
            sharing=self.sharing,
            strict_identity=self.strict_identity,
            server_key=self.server_key,
            client_key=self.client_key,
            insecure_plain_text=self.insecure_plain_text,
        )


class ConfigurationError(RuntimeError):
    """Sidedraft is configured wrongly; says everything that is wrong, a line each when it is several.

    Not a ValueError, which pydantic would wrap into a message of its own.
    """

    def __init__(self, errors: list[SettingsError]) -> None:
        lines = [str(error) for error in errors]
        head = "sidedraft: " if len(lines) == 1 else f"sidedraft: {len(lines)} settings are wrong\n  "
        super().__init__(head + "\n  ".join(lines))
        self.errors = errors


def is_configured(vllm_config: Any, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this engine has settings, right or wrong, and so is not to be left alone.

    Looks at `additional_config` and `speculative_config` only, which every version of vLLM has. Without the
    latter there is nothing to draft, and nothing is configured.
    """
    return _given(vllm_config, environ).is_any


def load(vllm_config: Any, environ: Mapping[str, str] = os.environ) -> VllmSettings | None:
    """The settings of this engine, or None when it has none: then vLLM is to be left alone.

    Args:
        vllm_config: vLLM's own, of a supported version.

    Raises:
        ConfigurationError: with everything that is wrong, also of what vLLM is told besides.
    """
    given = _given(vllm_config, environ)
    if not given.is_any:
        return None
    errors, method = given.errors, vllm_config.speculative_config.method
    if method not in METHODS:
        errors.append(SettingsError("speculative_config.method", method, f"one of {', '.join(METHODS)}"))
    errors += unsupported(vllm_config)
    settings = _settings(given)
    if settings is None or errors:
        raise ConfigurationError(errors)
    return settings


def _given(vllm_config: Any, environ: Mapping[str, str]) -> Given:
    given = Given()
    if vllm_config.speculative_config is None:
        return given
    variables = {name: value for name, value in environ.items() if name.startswith(PREFIX) and value}
    for variable, value in variables.items():
        name = variable.removeprefix(PREFIX).lower()
        if name in VllmSettings.__struct_fields__:
            given.add(name, _split(name, value), variable)
        elif near := difflib.get_close_matches(name, VllmSettings.__struct_fields__, n=1, cutoff=_SIMILAR):
            given.errors.append(SettingsError(variable, value, f"the name {PREFIX}{near[0].upper()}"))
    additional = vllm_config.additional_config
    section = additional.get(SECTION) if isinstance(additional, Mapping) else None
    if isinstance(section, Mapping):
        for name, value in section.items():
            given.add(str(name), value, f"additional_config {SECTION}.{name}")
    elif section is not None:
        given.errors.append(SettingsError(f"additional_config {SECTION}", section, "a table of settings"))
    for variable, name, value in aliases.read(
        environ, vllm_config.speculative_config.method, set(given.values)
    ):
        given.add(name, value, variable)
    return given


def _split(name: str, value: str) -> str | list[str]:
    return [part.strip() for part in value.split(",")] if name in _LISTS else value


def _settings(given: Given) -> VllmSettings | None:
    """None when something is wrong with them, which `given.errors` says then."""
    wrong = check_each(VllmSettings, given.values)
    good = {name: value for name, value in given.values.items() if name not in {one.field for one in wrong}}
    settings = None
    if "address" in good:
        try:
            settings = build(VllmSettings, good)
        except SettingsError as error:
            wrong.append(error)
    elif "address" not in given.values:
        wrong.append(SettingsError(f"{PREFIX}ADDRESS", None, "the address of a draft server"))
    given.errors += [given.named(error) for error in wrong]
    return settings
