"""The order of clients: pauses first, then arrival, and a bounded wait."""

import asyncio

import pytest

from stringline.policies.remote.request_queue import PAUSE_WEIGHT, RequestQueue


async def order(requests: list[tuple[str, float, float]], plan_s: float) -> list[str]:
    """Returns names in the order of their turns; requests are (name, arrival, pause)."""
    queue, served = RequestQueue(), list[str]()

    async def ask(name: str, arrival: float, pause_s: float) -> None:
        await asyncio.sleep(arrival)
        async with queue.turn(pause_s):
            served.append(name)
            await asyncio.sleep(plan_s)

    await asyncio.gather(*(ask(*request) for request in requests))
    return served


def test_equal_pauses_are_served_in_order_of_arrival() -> None:
    requests = [(name, 0.01 * n, 0.0) for n, name in enumerate("abcd")]
    assert asyncio.run(order(requests, 0.05)) == ["a", "b", "c", "d"]


def test_a_client_after_a_pause_waits_for_one_other_at_most() -> None:
    flood = [(name, 0.0, 0.0) for name in "abcdefgh"]
    served = asyncio.run(order([*flood, ("robot", 0.02, 0.5)], 0.05))
    assert served.index("robot") == 1


@pytest.mark.parametrize(("pause_s", "lead_s"), [(0.2 / PAUSE_WEIGHT, 10.0), (100.0, 0.2)])
def test_waiting_outweighs_a_pause_in_the_end(
    pause_s: float, lead_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client without a pause has waited for 0.3 s; the pause of the other counts for 0.2 s."""
    monkeypatch.setattr("stringline.policies.remote.request_queue.LONGEST_LEAD_S", lead_s)
    requests = [("first", 0.0, 0.0), ("waits", 0.0, 0.0), ("late", 0.3, pause_s)]
    assert asyncio.run(order(requests, 0.4)) == ["first", "waits", "late"]


def test_a_cancelled_client_gives_its_turn_away() -> None:
    async def scene() -> list[str]:
        queue, served = RequestQueue(), list[str]()

        async def ask(name: str) -> None:
            async with queue.turn(0.0):
                served.append(name)
                await asyncio.sleep(0.02)

        first, second, third = (asyncio.create_task(ask(name)) for name in "abc")
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(first, third)
        with pytest.raises(asyncio.CancelledError):
            await second
        await ask("d")
        return served

    assert asyncio.run(scene()) == ["a", "c", "d"]


def test_a_client_that_is_cancelled_when_it_is_called_gives_its_turn_away() -> None:
    async def scene() -> list[str]:
        queue, served = RequestQueue(), list[str]()

        async def ask(name: str) -> None:
            async with queue.turn(0.0):
                served.append(name)

        async with queue.turn(0.0):
            second, third = (asyncio.create_task(ask(name)) for name in "bc")
            await asyncio.sleep(0)
        second.cancel()  # Its turn has come, and it does not know yet.
        await third
        return served

    assert asyncio.run(scene()) == ["c"]
