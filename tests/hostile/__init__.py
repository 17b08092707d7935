"""A world that means harm: broken replies, broken files, broken clocks, and people who try to take prompts over.

``RMM_FUZZ=20`` multiplies the number of examples that each property is tried with.
"""

import os

from hypothesis import HealthCheck, settings

FUZZ = int(os.environ.get("RMM_FUZZ", "1"))


def scaled(examples):
    """Settings of a property that is tried so often, or ``RMM_FUZZ`` times as often."""
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=examples * FUZZ, deadline=None, suppress_health_check=checks)
