"""The learning rate grows with the batch as the papers say, and moves as it is drawn."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import ConfigError
from course_lib.training.schedules import lr_factor, scaled_lr

STEPS = st.integers(1, 400).flatmap(lambda total: st.tuples(st.just(total), st.integers(0, total)))


def test_the_rules_for_eight_times_the_batch() -> None:
    assert scaled_lr(0.1, "linear", 8 * 32, 32) == pytest.approx(0.8)
    assert scaled_lr(0.1, "sqrt", 8 * 32, 32) == pytest.approx(0.1 * 8**0.5)
    assert scaled_lr(0.1, "none", 8 * 32, 32) == 0.1


@pytest.mark.parametrize("rule", ["none", "linear", "sqrt"])
def test_one_rank_trains_at_the_rate_that_was_asked_for(rule: str) -> None:
    assert scaled_lr(0.05, rule, 128, 128) == 0.05


def test_an_unknown_rule_or_schedule_is_named() -> None:
    with pytest.raises(ConfigError, match="cubic"):
        scaled_lr(0.1, "cubic", 2, 1)
    with pytest.raises(ConfigError, match="triangle"):
        lr_factor(5, 10, 2, "triangle")


@given(STEPS, st.sampled_from(["constant", "one_cycle"]))
def test_the_factor_rises_once_then_never_again(steps: tuple[int, int], schedule: str) -> None:
    total, warmup = steps
    factors = [lr_factor(step, total, warmup, schedule) for step in range(total)]
    assert all(0 < factor <= 1 for factor in factors)
    assert factors[:warmup] == pytest.approx([(step + 1) / max(1, warmup) for step in range(warmup)])
    assert factors[max(0, warmup - 1) :] == sorted(factors[max(0, warmup - 1) :], reverse=True)
    assert max(factors) == pytest.approx(1)


def test_one_cycle_is_half_a_cosine_that_ends_near_zero() -> None:
    assert lr_factor(10, 110, 10, "one_cycle") == 1
    assert lr_factor(60, 110, 10, "one_cycle") == pytest.approx(0.5)
    assert 0 < lr_factor(109, 110, 10, "one_cycle") < 0.001
    assert lr_factor(110, 110, 10, "one_cycle") == pytest.approx(0)


def test_constant_stays_after_the_warm_up() -> None:
    assert {lr_factor(step, 100, 10, "constant") for step in range(9, 100)} == {1.0}
