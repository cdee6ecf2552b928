"""Fan-out: what waits goes out together, who comes late catches up, who is too slow is dropped and holds nobody up."""

import asyncio

import pytest

from gateway.runs.fanout import MAX_PENDING_BYTES, Channel

pytestmark = pytest.mark.anyio

SOON = 0.01
NEVER = 60.0


async def test_what_waits_for_a_slow_reader_goes_out_as_one_piece() -> None:
    channel = Channel()
    watcher = channel.subscribe()
    channel.publish(b"one ")
    assert await watcher.read(NEVER) == b"one "
    for piece in (b"two ", b"three ", b"four"):
        channel.publish(piece)
    assert await watcher.read(NEVER) == b"two three four"


async def test_a_reader_is_woken_by_a_piece_and_by_the_end() -> None:
    channel = Channel()
    watcher = channel.subscribe()
    reading = asyncio.create_task(watcher.read(NEVER))
    await asyncio.sleep(0)
    channel.publish(b"one")
    assert await reading == b"one"
    reading = asyncio.create_task(watcher.read(NEVER))
    await asyncio.sleep(0)
    channel.close()
    assert await reading is None
    assert await watcher.read(NEVER) is None


async def test_a_quiet_stream_gives_nothing_in_time_and_goes_on() -> None:
    channel = Channel()
    watcher = channel.subscribe()
    assert [await watcher.read(SOON) for _ in range(3)] == [b"", b"", b""]
    channel.publish(b"one")
    assert await watcher.read(SOON) == b"one"


async def test_who_comes_late_gets_all_that_was_published_first_and_then_the_rest() -> None:
    channel = Channel()
    for piece in (b"one ", b"two "):
        channel.publish(piece)
    late = channel.subscribe()
    channel.publish(b"three")
    assert await late.read(NEVER) == b"one two three"
    channel.close()
    assert await late.read(NEVER) is None
    after = channel.subscribe()
    assert [await after.read(NEVER), await after.read(NEVER)] == [b"one two three", None]
    channel.publish(b"nothing after the end")
    assert await channel.subscribe().read(NEVER) == b"one two three"


async def test_who_is_too_slow_is_dropped_and_holds_nobody_up() -> None:
    channel = Channel()
    channel.publish(b"b" * MAX_PENDING_BYTES)  # what there is to catch up on does not count against anybody
    slow, quick = channel.subscribe(), channel.subscribe()
    piece = b"x" * (MAX_PENDING_BYTES // 4)
    for _ in range(4):
        channel.publish(piece)
        assert await quick.read(NEVER)
    assert channel.watchers == 2
    channel.publish(b"one more")
    assert channel.watchers == 1
    assert await slow.read(NEVER) is None
    assert await quick.read(NEVER) == b"one more"


async def test_who_has_caught_up_has_no_more_than_the_others() -> None:
    channel = Channel()
    channel.publish(b"b" * MAX_PENDING_BYTES)
    watcher = channel.subscribe()
    assert await watcher.read(NEVER)
    channel.publish(b"x" * MAX_PENDING_BYTES)
    assert channel.watchers == 1
    channel.publish(b"x")
    assert channel.watchers == 0


async def test_who_leaves_is_forgotten_and_the_run_goes_on() -> None:
    channel = Channel()
    leaving, staying = channel.subscribe(), channel.subscribe()
    leaving.close()
    channel.publish(b"one")
    assert channel.watchers == 1
    assert await leaving.read(NEVER) is None
    assert await staying.read(NEVER) == b"one"


async def test_an_empty_piece_is_none() -> None:
    channel = Channel()
    watcher = channel.subscribe()
    channel.publish(b"")
    assert await watcher.read(SOON) == b""
