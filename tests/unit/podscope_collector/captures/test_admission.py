import asyncio
import time

from podscope_collector.captures.admission import ByteBudget, ExpectedSize, StartLine


def test_hosts_wait_for_bytes_and_come_in_turn() -> None:
    async def scenario() -> list[str]:
        budget = ByteBudget(10)
        seen: list[str] = []

        async def host(name: str, size: int) -> None:
            async with budget.reserve(size):
                seen.append(f"+{name}")
                await asyncio.sleep(0)
                seen.append(f"-{name}")

        async with asyncio.TaskGroup() as group:
            for name, size in (("a", 6), ("b", 6), ("c", 4)):
                group.create_task(host(name, size))
        return seen

    seen = asyncio.run(scenario())
    assert seen.index("-a") < seen.index("+b")
    assert seen.index("+b") < seen.index("+c")


def test_one_host_larger_than_the_budget_is_let_in_alone() -> None:
    async def scenario() -> None:
        budget = ByteBudget(1)
        async with budget.reserve(100):
            pass
        async with budget.reserve(100):
            pass

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_host_that_turns_out_large_holds_the_next_back() -> None:
    async def scenario() -> bool:
        budget = ByteBudget(10)
        async with budget.reserve(2) as share:
            share.becomes(10)
            waiting = asyncio.ensure_future(budget.reserve(2).__aenter__())
            await asyncio.sleep(0)
            held_back = not waiting.done()
        await waiting
        return held_back

    assert asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_cancelled_wait_leaves_no_hole_in_the_budget() -> None:
    async def scenario() -> None:
        budget = ByteBudget(10)
        async with budget.reserve(10):
            waiting = asyncio.ensure_future(budget.reserve(10).__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        async with budget.reserve(10):
            pass

    asyncio.run(asyncio.wait_for(scenario(), 60))


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_hosts_are_started_ahead_by_what_is_stored_until_they_answer() -> None:
    mib = 1 << 20

    async def scenario() -> tuple[int, int]:
        clock = Clock()
        budget = ByteBudget(100 * mib, lead_s=3.0, clock=clock)
        at_first = await let_in(budget, 1000, 10 * mib)
        # Ten profiles of 10 MiB, one after another, each half a second in memory: 20 MiB/s.
        for _ in range(10):
            async with budget.reserve(10 * mib) as share:
                await share.arrives()
                share.becomes(10 * mib)
                clock.now += 0.5
        return at_first, await let_in(budget, 1000, 10 * mib)

    # Room for 10, and before the rate is known for as many again; then 20 MiB/s for three
    # seconds.
    assert asyncio.run(asyncio.wait_for(scenario(), 60)) == (20, 16)


def test_a_profile_that_does_not_come_through_says_nothing_of_the_rate() -> None:
    mib = 1 << 20

    async def scenario() -> int:
        clock = Clock()
        budget = ByteBudget(100 * mib, lead_s=3.0, clock=clock)
        for read in [True, False] * 8:
            async with budget.reserve(10 * mib) as share:
                await share.arrives()
                if read:
                    share.becomes(10 * mib)
                clock.now += 0.5
        return await let_in(budget, 1000, 10 * mib)

    # 80 MiB in 8 s, for three seconds ahead.
    assert asyncio.run(asyncio.wait_for(scenario(), 60)) == 13


def test_profiles_wait_at_their_hosts_until_they_have_room() -> None:
    async def scenario() -> list[bool]:
        budget = ByteBudget(10, lead_s=1.0)
        shares = [budget.reserve(6) for _ in range(2)]
        first, second = [await share.__aenter__() for share in shares]
        await first.arrives()
        arriving = asyncio.ensure_future(second.arrives())
        await asyncio.sleep(0)
        has_come = [arriving.done()]
        # The first is smaller than it was taken for.
        first.becomes(4)
        await asyncio.sleep(0)
        has_come.append(arriving.done())
        await shares[0].__aexit__(None, None, None)
        await shares[1].__aexit__(None, None, None)
        # Nothing is left in it.
        async with budget.reserve(10) as whole:
            await whole.arrives()
        return has_come

    assert asyncio.run(asyncio.wait_for(scenario(), 60)) == [False, True]


def test_a_cancelled_wait_for_room_leaves_no_hole_in_the_budget() -> None:
    async def scenario() -> None:
        budget = ByteBudget(10, lead_s=1.0)
        async with budget.reserve(10) as first:
            await first.arrives()
            async with budget.reserve(10) as second:
                arriving = asyncio.ensure_future(second.arrives())
                await asyncio.sleep(0)
                arriving.cancel()
                await asyncio.gather(arriving, return_exceptions=True)
        async with budget.reserve(10) as whole:
            await whole.arrives()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_all_go_when_the_last_has_connected_or_dropped_out() -> None:
    async def scenario() -> list[int]:
        line = StartLine(3, patience_s=60, delay_ms=5000)
        line.settle()
        line.settle()
        arrived = [asyncio.ensure_future(line.opened()) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in arrived)
        line.settle()
        await asyncio.gather(*arrived)
        return [line.start_timestamp_ns() for _ in range(2)]

    before = time.time_ns()
    first, second = asyncio.run(asyncio.wait_for(scenario(), 60))
    assert first == second
    assert before + 5e9 <= first <= time.time_ns() + 5e9


def test_nobody_waits_longer_than_the_patience() -> None:
    async def scenario() -> int:
        line = StartLine(2, patience_s=0.01, delay_ms=0)
        await line.opened()
        return line.start_timestamp_ns()

    assert asyncio.run(asyncio.wait_for(scenario(), 60)) == 0


async def let_in(budget: ByteBudget, count: int, size: int) -> int:
    """How many of so many hosts get in at once."""
    waiting = [asyncio.ensure_future(budget.reserve(size).__aenter__()) for _ in range(count)]
    await asyncio.sleep(0)
    admitted = sum(one.done() for one in waiting)
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return admitted


def test_hosts_that_answer_more_than_they_were_taken_for_hold_the_others_back() -> None:
    async def scenario() -> tuple[int, int]:
        budget = ByteBudget(100)
        before = await let_in(budget, 20, 10)
        budget = ByteBudget(100)
        sizes = ExpectedSize(budget, 10)
        for size in (10, 30):
            sizes.arrived(size)
        return before, await let_in(budget, 20, 10)

    # A mean of 20 lets 5 into 100 bytes, where 10 let 10.
    assert asyncio.run(scenario()) == (10, 5)


def test_many_small_answers_let_more_hosts_start_and_a_few_do_not() -> None:
    async def scenario(answers: int) -> int:
        budget = ByteBudget(100)
        sizes = ExpectedSize(budget, 50)
        for size in [5] * (answers - 1) + [10]:
            sizes.arrived(size)
        return await let_in(budget, 20, 50)

    assert asyncio.run(scenario(15)) == 2
    # The largest that came, not the mean.
    assert asyncio.run(scenario(16)) == 10
