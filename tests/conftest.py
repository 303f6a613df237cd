"""How every test is run."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No test may fail because the machine is busy: examples have no deadline, and drawing them may be slow.
settings.register_profile("sidedraft", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sidedraft")
