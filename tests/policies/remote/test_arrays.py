"""Packed data is restored, and invalid bytes are rejected with a message."""

import time
import tracemalloc
from contextlib import suppress

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from stringline.policies.remote.protocol import REQUEST_ENTRIES, REQUEST_LIST, pack, unpack

NUMBERS = arrays.arrays(
    st.sampled_from([np.bool_, np.uint8, np.uint16, np.int32, np.int64, np.float32, np.float64]),
    arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
)


@given(
    st.dictionaries(
        st.text(max_size=8),
        NUMBERS | st.text() | st.integers(-(2**63), 2**63 - 1) | st.none(),
        max_size=4,
    )
)
def test_packed_data_is_restored(value: dict[str, object]) -> None:
    found = unpack(pack(value))
    assert found.keys() == value.keys()
    for key, expected in value.items():
        if isinstance(expected, np.ndarray):
            assert (found[key].dtype, found[key].shape) == (expected.dtype, expected.shape)
            assert found[key].tobytes() == expected.tobytes()
        else:
            assert found[key] == expected


def test_slices_and_scalars_are_restored() -> None:
    image = np.arange(24).reshape(2, 3, 4)[:, ::-1, ::2]
    found = unpack(pack([image, np.float32(0.1), {"deep": [np.arange(3)]}]))
    np.testing.assert_array_equal(found[0], image)
    assert found[1] == np.float32(0.1)
    np.testing.assert_array_equal(found[2]["deep"][0], np.arange(3))


def test_the_layout_is_that_of_openpi() -> None:
    layout = {b"__ndarray__": True, b"data": b"\x01\x00\x02\x00", b"dtype": "<u2", b"shape": [2]}
    assert pack(np.array([1, 2], "<u2")) == msgpack.packb(layout)
    scalar = {b"__npgeneric__": True, b"data": 0.5, b"dtype": "<f4"}
    assert pack(np.float32(0.5)) == msgpack.packb(scalar)


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ({b"data": b"1234", b"dtype": "<f4", b"shape": [2]}, "has 8 bytes; got 4"),
        ({b"data": b"1234", b"dtype": "<f4", b"shape": [2**62, 2**62]}, "bytes; got 4"),
        ({b"data": b"1234", b"dtype": "<f4", b"shape": [-1]}, "a shape of whole numbers"),
        (
            {b"data": b"12345678", b"dtype": "|O", b"shape": [1]},
            "an array of object is not allowed",
        ),
        ({b"data": b"12345678", b"dtype": "i4,i4", b"shape": [1]}, "not allowed"),
        ({b"data": b"1234", b"dtype": 4, b"shape": [1]}, "a dtype is text"),
        ({b"data": b"1234", b"dtype": "<q9", b"shape": [1]}, "cannot be unpacked"),
        ({b"data": "1234", b"dtype": "<f4", b"shape": [1]}, "needs bytes"),
        ({b"dtype": "<f4"}, "cannot be unpacked"),
    ],
)
def test_a_wrong_description_of_an_array_is_rejected(
    claim: dict[bytes, object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        unpack(msgpack.packb({b"__ndarray__": True} | claim))


@given(st.binary(max_size=200))
def test_random_bytes_are_plain_data_or_rejected(data: bytes) -> None:
    with suppress(ValueError):
        unpack(data)


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, np.array([object()]), np.zeros(2, complex), 2**80]
)
def test_other_objects_are_not_packed(value: object) -> None:
    with pytest.raises(ValueError, match=r"cannot be packed|not allowed"):
        pack(value)


EMPTY_LISTS = b"\x90" * 2**23
THOUSANDS = b"\xdd\x00\x00\x20\x00" + (b"\xdc\x03\xff" + b"\x90" * 1023) * 2**13


@pytest.mark.parametrize(
    "attack",
    [
        b"\xdd\x00\x80\x00\x00" + EMPTY_LISTS,
        THOUSANDS,
        b"\xdd\x00\x01\x00\x00" * 500,
        b"\xdf\x00\x40\x00\x00" + b"\xc0\x80" * 2**22,
        b"\xdc\xff\xff" + b"\x81\xc0\xc0" * 2**16,
    ],
    ids=["8 MiB of empty lists", "lists of lists", "claimed lengths", "a map", "maps"],
)
def test_small_messages_with_many_entries_are_rejected_before_they_need_memory(
    attack: bytes,
) -> None:
    """Unlimited, 8 MiB of empty lists need 637 MiB."""
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(ValueError, match=r"cannot be unpacked: .*(exceeds|more than)"):
        unpack(attack, most_entries=REQUEST_ENTRIES, longest_list=REQUEST_LIST)
    took = time.process_time() - start
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * 2**20
    assert took < 1.0
