"""Remote drafts for vLLM, which stays as it is: a plugin that vLLM finds by its entry point (docs/vllm.md).

Nothing is imported here: vLLM loads `plugin` in every one of its processes, configured or not.
"""
