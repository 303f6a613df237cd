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
INPUT_BATCH = "vllm.v1.worker.gpu.input_batch"
STATES = "vllm.v1.worker.gpu.states"
BUFFERS = "vllm.v1.worker.gpu.buffer_utils"
AUX_LAYERS = "vllm.v1.worker.gpu.spec_decode.eagle.eagle3_utils"
SCHEDULED = "vllm.v1.core.sched.output"
PARALLEL_STATE = "vllm.distributed.parallel_state"
MULTIMODAL = "vllm.multimodal.inputs"


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
    Name("vllm", ("__version__",)),
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

_PROPOSE = (
    "input_batch",
    "attn_metadata",
    "slot_mappings",
    "last_hidden_states",
    "aux_hidden_states",
    "num_sampled",
    "num_rejected",
    "last_sampled",
    "next_prefill_tokens",
    "temperature",
    "seeds",
    "dp_sync_state",
    "dummy_run",
    "skip_attn_for_dummy_run",
    "mm_inputs",
    "is_profile",
    "num_speculative_tokens",
)

SPEAKING: tuple[Item, ...] = (
    # The speculator in the runner.
    Attribute(
        SPECULATOR,
        "BaseSpeculator",
        ("num_query_per_req", "num_extra_query_per_req", "init_cudagraph_manager", "capture"),
    ),
    Function(SPECULATOR, "BaseSpeculator.propose", _PROPOSE),
    Call(
        MODEL_RUNNER,
        "GPUModelRunner.sample_tokens",
        "self.speculator.propose",
        (
            "input_batch",
            "attn_metadata",
            "slot_mappings_by_layer",
            "spec_hidden_states",
            "aux_hidden_states",
            "num_sampled",
            "num_rejected",
            "self.req_states.last_sampled_tokens",
            "self.req_states.next_prefill_tokens",
            "self.sampler.sampling_states.temperature.gpu",
            "self.sampler.sampling_states.seeds.gpu",
            "num_speculative_tokens=",
            "dp_sync_state=",
            "mm_inputs=",
        ),
    ),
    Attribute(
        INPUT_BATCH,
        "InputBatch",
        (
            "req_ids",
            "num_reqs",
            "num_tokens",
            "idx_mapping",
            "idx_mapping_np",
            "num_scheduled_tokens",
            "num_computed_tokens_np",
            "query_start_loc_np",
            "prefill_len_np",
            "input_ids",
        ),
    ),
    Function(AUX_LAYERS, "get_eagle3_aux_layers_from_config", ("spec_config",)),
    # Ranks.
    Function(PARALLEL_STATE, "get_tp_group", ()),
    Attribute(PARALLEL_STATE, "GroupCoordinator", ("world_size", "rank_in_group")),
    Function(PARALLEL_STATE, "GroupCoordinator.broadcast", ("input_", "src")),
    # Requests come and go.
    Function(
        STATES,
        "RequestState.add_request",
        ("req_id", "prompt_len", "all_token_ids", "num_computed_tokens", "max_tokens"),
    ),
    Function(STATES, "RequestState.remove_request", ("req_id",)),
    Attribute(
        STATES, "RequestState", ("all_token_ids", "num_computed_tokens", "max_seq_len", "max_model_len")
    ),
    Attribute(BUFFERS, "StagedWriteTensor", ("gpu",)),
    Call(
        MODEL_RUNNER,
        "GPUModelRunner.add_requests",
        "self.req_states.add_request",
        ("req_id=", "prompt_len=", "all_token_ids=", "num_computed_tokens=", "max_tokens="),
    ),
    Call(MODEL_RUNNER, "GPUModelRunner._remove_request", "self.req_states.remove_request", ("req_id",)),
    Call(MODEL_RUNNER, "GPUModelRunner.finish_requests", "self._remove_request", ("req_id",)),
    Function(MODEL_RUNNER, "GPUModelRunner.add_requests", ("scheduler_output",)),
    Call(MODEL_RUNNER, "GPUModelRunner.execute_model", "self.add_requests", ("scheduler_output",)),
    Attribute(SCHEDULED, "SchedulerOutput", ("scheduled_new_reqs",)),
    Attribute(
        SCHEDULED,
        "NewRequestData",
        ("req_id", "lora_request", "mm_features", "prompt_embeds", "prompt_is_token_ids"),
    ),
    Attribute("vllm.lora.request", "LoRARequest", ("lora_name", "lora_path", "lora_int_id", "load_inplace")),
    Attribute(MULTIMODAL, "MultiModalFeatureSpec", ("modality", "identifier", "mm_position")),
    Attribute(MULTIMODAL, "PlaceholderRange", ("offset", "length")),
    # The scheduler's depth.
    Attribute(SCHEDULER, "Scheduler", ("vllm_config", "dynamic_sd_lookup", "num_spec_tokens")),
    # What is read of the configuration.
    Attribute(
        CONFIG,
        "VllmConfig",
        ("model_config", "parallel_config", "scheduler_config", "watermark_config", "instance_id"),
    ),
    Attribute(
        "vllm.config.model",
        "ModelConfig",
        (
            "model",
            "revision",
            "dtype",
            "max_model_len",
            "hf_overrides",
            "get_hidden_size",
            "get_vocab_size",
        ),
    ),
    Attribute(
        "vllm.config.parallel",
        "ParallelConfig",
        ("data_parallel_size", "data_parallel_index", "prefill_context_parallel_size"),
    ),
    Attribute("vllm.config.scheduler", "SchedulerConfig", ("max_num_seqs",)),
    Attribute(
        SPECULATIVE,
        "SpeculativeConfig",
        (
            "model",
            "draft_model_config",
            "enable_adaptive_verification",
            "use_heterogeneous_vocab",
            "disable_eagle_block_drop",
        ),
    ),
)

CONTRACT: tuple[Item, ...] = PLUGIN + SPEAKING
