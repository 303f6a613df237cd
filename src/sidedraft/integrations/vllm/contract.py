"""Every name, signature and call site of vLLM that this integration relies on, in one place.

`tests/integrations/vllm` compares the list with the sources of each supported version by their syntax trees;
`tools/extract_vllm_contract.py` records what a version has. Add here whatever you come to rely on.
"""

from __future__ import annotations

from dataclasses import dataclass

CONFIG = "vllm.config.vllm"
SPECULATORS = "vllm.v1.worker.gpu.spec_decode"
SPECULATOR = "vllm.v1.worker.gpu.spec_decode.speculator"
MODEL_RUNNER = "vllm.v1.worker.gpu.model_runner"
SCHEDULER = "vllm.v1.core.sched.scheduler"
PLUGINS = "vllm.plugins"
ENGINE_CORE = "vllm.v1.engine.core"
WORKER_BASE = "vllm.v1.worker.worker_base"
ENGINE_ARGS = "vllm.engine.arg_utils"
SPECULATIVE = "vllm.config.speculative"


@dataclass(frozen=True, slots=True)
class Function:
    """A function or method (`Class.method`) has these parameters, in this order, `self` left out. A trailing
    `...` allows more that have defaults, a trailing `*` any more (for what is wrapped and passes them on)."""

    module: str
    name: str
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """`within` calls `callee` (its last names, such as `speculator.propose`), each time with these arguments:
    the text of positional ones, `name=` for keywords. With `...` last there may be more."""

    module: str
    within: str
    callee: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Attribute:
    """A class has these attributes: assigned or annotated in its body, or assigned to `self` in a method."""

    module: str
    owner: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Name:
    """A module binds these names: by import, assignment, `def` or `class`."""

    module: str
    names: tuple[str, ...]


Item = Function | Call | Attribute | Name

PLUGIN: tuple[Item, ...] = (
    # How the plugin is found and called, in every process.
    Name(PLUGINS, ("DEFAULT_PLUGINS_GROUP", "load_general_plugins")),
    Call(ENGINE_ARGS, "EngineArgs.__post_init__", "load_general_plugins", ()),
    Call(ENGINE_CORE, "EngineCore.__init__", "load_general_plugins", ()),
    Call(WORKER_BASE, "WorkerWrapperBase.init_worker", "load_general_plugins", ()),
    # What it wraps.
    Function(CONFIG, "VllmConfig.__post_init__", ()),
    Function(SPECULATORS, "init_speculator", ("vllm_config", "device", "req_states")),
    Name(MODEL_RUNNER, ("init_speculator",)),
    Call(
        MODEL_RUNNER,
        "GPUModelRunner.__init__",
        "init_speculator",
        ("self.vllm_config", "self.device", "self.req_states"),
    ),
    Function(SCHEDULER, "Scheduler.__init__", ("vllm_config", "*")),
    # What it reads.
    Attribute(CONFIG, "VllmConfig", ("additional_config", "speculative_config")),
    Attribute(SPECULATIVE, "SpeculativeConfig", ("method", "num_speculative_tokens")),
)

CONTRACT: tuple[Item, ...] = PLUGIN
