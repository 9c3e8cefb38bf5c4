import asyncio
import time

from podscope_collector.captures.admission import ByteBudget, StartLine


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

    asyncio.run(asyncio.wait_for(scenario(), 1))


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

    assert asyncio.run(asyncio.wait_for(scenario(), 1))


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

    asyncio.run(asyncio.wait_for(scenario(), 1))


def test_all_go_when_the_last_has_arrived_or_dropped_out() -> None:
    async def scenario() -> list[int]:
        line = StartLine(3, patience_s=60, delay_ms=5000)
        arrived = [asyncio.ensure_future(line.arrive()) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in arrived)
        line.leave()
        await asyncio.gather(*arrived)
        return [line.start_timestamp_ns() for _ in range(2)]

    before = time.time_ns()
    first, second = asyncio.run(asyncio.wait_for(scenario(), 1))
    assert first == second
    assert before + 5e9 <= first <= time.time_ns() + 5e9


def test_nobody_waits_longer_than_the_patience() -> None:
    async def scenario() -> int:
        line = StartLine(2, patience_s=0.01, delay_ms=0)
        await line.arrive()
        return line.start_timestamp_ns()

    assert asyncio.run(asyncio.wait_for(scenario(), 1)) == 0
