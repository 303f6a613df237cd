"""Every default, limit and environment variable of the project, typed and validated (ground layer).

A settings object that exists is valid: building one with a bad value raises `SettingsError`, which names the
field, the value and what was expected.
"""

from sidedraft.settings.base import Settings, build, check_each
from sidedraft.settings.bench import BenchSettings
from sidedraft.settings.engine import EngineSettings
from sidedraft.settings.environment import cache_directory, runtime_directory
from sidedraft.settings.errors import SettingsError
from sidedraft.settings.file import read_file
from sidedraft.settings.server import HTTP_OFF, ServerSettings
from sidedraft.settings.status import StatusSettings
from sidedraft.settings.units import GIB, KIB, MIB, format_bytes, parse_bytes
from sidedraft.settings.verifier import VerifierSettings
from sidedraft.settings.wire import WireLimits

__all__ = [
    "GIB",
    "HTTP_OFF",
    "KIB",
    "MIB",
    "BenchSettings",
    "EngineSettings",
    "ServerSettings",
    "Settings",
    "SettingsError",
    "StatusSettings",
    "VerifierSettings",
    "WireLimits",
    "build",
    "cache_directory",
    "check_each",
    "format_bytes",
    "parse_bytes",
    "read_file",
    "runtime_directory",
]
