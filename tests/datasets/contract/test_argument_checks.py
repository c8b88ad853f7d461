"""Ranges of numbers: membership, and the error for a number outside."""

import math

import numpy as np
import pytest

from stringline.datasets.contract.argument_checks import (
    COUNT,
    FINITE,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    WHOLE,
    Range,
    printable,
    unknown_name,
)

EVERY = (
    FINITE,
    POSITIVE,
    NOT_NEGATIVE,
    SHARE,
    WHOLE,
    COUNT,
    Range(most=1),
    Range(below=1),
    Range(above=0, most=1),
)


@pytest.mark.parametrize(
    "strange",
    [math.nan, math.inf, -math.inf, np.float32("nan"), np.float64("inf"), None, "1", True, 1j, [1]],
)
def test_ranges_contain_finite_numbers_only(strange: object) -> None:
    for allowed in EVERY:
        assert strange not in allowed


@pytest.mark.parametrize("end", [-2.5, 0, 3])
def test_closed_and_open_ends(end: float) -> None:
    beneath, beyond = np.nextafter(end, -math.inf), np.nextafter(end, math.inf)
    assert [x in Range(least=end) for x in (beneath, end, beyond)] == [False, True, True]
    assert [x in Range(above=end) for x in (beneath, end, beyond)] == [False, False, True]
    assert [x in Range(most=end) for x in (beneath, end, beyond)] == [True, True, False]
    assert [x in Range(below=end) for x in (beneath, end, beyond)] == [True, False, False]


def test_whole_numbers() -> None:
    assert [x in COUNT for x in (0, 1, np.int32(7), 10**400, 1.0, 1.5, np.float32(2))] == [
        False,
        True,
        True,
        True,
        *[False] * 3,
    ]
    assert [x in WHOLE for x in (-1, 0, np.uint8(0))] == [False, True, True]
    assert all(x in POSITIVE for x in (1, 0.5, np.float32(0.5), np.int64(1), 1e308))


@pytest.mark.parametrize(
    ("allowed", "words"),
    [
        (FINITE, "a finite number"),
        (POSITIVE, "a number above 0"),
        (NOT_NEGATIVE, "a number of at least 0"),
        (SHARE, "a number of at least 0 and below 1"),
        (WHOLE, "an integer of at least 0"),
        (COUNT, "an integer of at least 1"),
        (Range(whole=True), "an integer"),
        (Range(least=0.5, most=2), "a number from 0.5 to 2"),
        (Range(above=0, most=1), "a number above 0 and at most 1"),
        (Range(above=0, below=90), "a number above 0 and below 90"),
        (Range(most=3), "a number of at most 3"),
        (Range(below=3, whole=True), "an integer below 3"),
    ],
)
def test_a_range_is_described_in_words(allowed: Range, words: str) -> None:
    assert str(allowed) == words
    with pytest.raises(ValueError, match=rf"^depth\.unit must be {words} \(got nan\)\.$"):
        allowed.check(**{"fine": 1 if 1 in allowed else 0, "depth.unit": math.nan, "worse": "x"})


def test_numbers_in_the_range_pass() -> None:
    SHARE.check(dropout=0.0, joint_dropout=0.999, other=0)
    with pytest.raises(
        ValueError, match=r"^chunk must be an integer of at least 1 \(got 'many'\)\.$"
    ):
        COUNT.check(draws=3, chunk="many")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("left/waist  \u00e9 \u4e2d", "left/waist  \u00e9 \u4e2d"),
        ("a\n3 episodes imported", r"a\n3 episodes imported"),
        ("\x1b[2J\r\x00\x07\x9b", r"\x1b[2J\r\x00\x07\x9b"),
        ("abc\u202efdp\u2066\u200b", r"abc\u202efdp\u2066\u200b"),
        ("\u2028\u2029\x85", r"\u2028\u2029\x85"),
        ("\ud800", r"\ud800"),
    ],
)
def test_names_from_data_are_shown_in_one_line(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert len(printable(text).splitlines()) <= 1


def test_names_in_messages_forge_no_lines() -> None:
    message = str(unknown_name("camera", "a\nb", ["x\n3 episodes imported", "\x1b[1m"]))
    assert len(message.splitlines()) == 1
    assert "\x1b" not in message
