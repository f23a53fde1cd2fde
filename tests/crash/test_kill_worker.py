"""A worker is killed at every point of begin, effect and receipt; whoever comes next brings the work to one effect."""

from __future__ import annotations

import pytest

from tests.crash.host import POINTS
from tests.crash.stage import CAPABILITIES

NEEDS_PERSON = {"needs_confirmation", "effect_not_found", "idempotency_window_expired"}
EXPLAINS_ITSELF = {"idempotent", "both", "query-final"}
"""Where the next worker needs nobody, wherever the first one died."""


def finish(case):
    """Run workers, and let a person decide where the product asks for one, until there is a result."""
    for _ in range(4):
        found = case.run()
        if found["end"] == "result":
            return found["result"]
        assert found["end"] == "blocked", found
        if found["code"] in NEEDS_PERSON:
            case.decide()
        else:
            assert found["code"] == "attempt_in_progress"
            case.stage.advance()
    raise AssertionError(f"no result: {found}")


def brought_to_one_effect(case):
    """Finish the work and say who was needed; the last word is one effect and its receipt."""
    result = finish(case)
    (applied,) = [effect for effect in case.sink if effect.applied]
    assert result == {"published": applied.effect_id}
    effects = case.sink
    assert case.run() == {"end": "result", "result": result}
    assert case.sink == effects
    if case.capability in EXPLAINS_ITSELF:
        assert case.decisions == []


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_a_worker_killed_anywhere_leaves_work_that_ends_with_one_effect(sqlite_stage, tmp_path, capability, point):
    case = sqlite_stage.case(capability, tmp_path)

    assert case.start(die_at=point).wait() == -9
    case.check()

    brought_to_one_effect(case)
