"""The text that Prometheus scrapes. Not imported by this package itself: a verifier needs no exposition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class _Collected(Collector):
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        yield from self._collect()


class Exposition:
    """A registry of its own, so that several servers in one process, and other libraries, do not mix."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        """`collect` is called for every scrape, by any thread, also by several at once."""
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collected(collect))
        ProcessCollector(registry=self._registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        """Text and content type, in the format that an Accept header asks for."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self._registry), content_type
