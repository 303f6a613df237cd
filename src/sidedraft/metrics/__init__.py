"""Numbers of a process; `exposition` and `families` show them to Prometheus, for processes that are scraped.

Neither torch nor zmq is needed, and prometheus_client only by those two.
"""

from sidedraft.metrics.counters import Counter, snapshot
from sidedraft.metrics.histogram import Histogram, quantile
from sidedraft.metrics.stages import Stages

__all__ = ["Counter", "Histogram", "Stages", "quantile", "snapshot"]
