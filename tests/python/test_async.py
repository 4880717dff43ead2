# SPDX-License-Identifier: Apache-2.0
"""Tests asyncio: awaits operations, completions, arrivals and notifications in both progress modes."""
import asyncio
import gc
import os
import socket
import threading
import time

import pytest

import hawser
from conftest import LIMIT, Pair, connect, wait_until
from hawser import Event, Region, Vec


def run(main):
    return asyncio.run(asyncio.wait_for(main, LIMIT))


@pytest.mark.parametrize("caller_progress", [False, True])
def test_await_operations(caller_progress):
    async def main():
        with hawser.Context() as a, hawser.Context(caller_progress=caller_progress) as b:
            port = a.listen("127.0.0.1")
            to_a, to_b = await asyncio.gather(b.connect_async("127.0.0.1", port, timeout=LIMIT), a.accept_async())
            mine, theirs = b.alloc(1 << 20), a.alloc(1 << 20)
            mine.view[:4] = b"data"
            region = Region(theirs.export(read=True, write=True))
            assert await to_a.write([Vec(mine, region=region)]) == 1 << 20
            assert theirs.load(0, 4) == b"data"
            ops = [to_a.write([(mine, k, 1, region, 4 * k)], notification=bytes([k])) for k in range(200)]
            assert await asyncio.gather(*ops) == [1] * 200
            assert sorted([(await to_b.wait_notification())[0] for _ in range(200)]) == list(range(200))
            receive = to_b.recv([Vec(theirs)])
            waiting = asyncio.ensure_future(asyncio.wait_for(receive, LIMIT))
            await asyncio.sleep(0)
            await to_a.send([Vec(mine, 0, 77)])
            assert await waiting == 77
            assert await receive == 77  # awaited a second time

    run(main())


def test_failures_are_raised_where_they_are_awaited(pair):
    async def main():
        receive = pair.to_b.recv([Vec(pair.a.alloc(8))])
        waiting = [asyncio.ensure_future(asyncio.wait_for(receive, LIMIT)) for _ in range(3)]
        await asyncio.sleep(0)
        receive.cancel()
        for w in waiting:
            with pytest.raises(hawser.CanceledError):
                await w
        receive = pair.to_b.recv([Vec(pair.a.alloc(8))], timeout=0.02)
        with pytest.raises(hawser.DeadlineError):
            await receive

    run(main())


def test_cancelling_a_wait_leaves_the_operation(pair):
    async def main():
        receive = pair.to_b.recv([Vec(pair.a.alloc(8))])
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(receive, 0.02)
        assert not receive.done()
        await pair.to_a.send([Vec(b"12345678")])
        assert await receive == 8

    run(main())


def test_completions_are_iterated():
    async def main():
        with hawser.Context(events=True) as a, hawser.Context(events=True) as b:
            to_a = await b.connect_async("127.0.0.1", a.listen("127.0.0.1"), timeout=LIMIT)
            seen = []

            async def serve():
                async for c in a.completions():
                    seen.append(c.event)
                    if c.event == Event.NOTIFIED:
                        c.peer.post(hawser.Notify(data=c.data.upper()), user=len(c.data))
                    if c.event == Event.DIED:
                        return

            task = asyncio.ensure_future(serve())
            answers = []
            for word in (b"one", b"three"):
                to_a.notify(word)
                async for c in b.completions():
                    assert c.event == Event.NOTIFIED
                    answers.append(c.data)
                    break
            to_a.close()
            await task
            assert answers == [b"ONE", b"THREE"]
            assert seen[0] == Event.ARRIVED and seen[-1] == Event.DIED and seen.count(Event.ENDED) == 2

    run(main())


def test_close_wakes_what_is_awaited():
    async def main():
        a, b = hawser.Context(), hawser.Context()
        to_a, to_b = await asyncio.gather(b.connect_async("127.0.0.1", a.listen("127.0.0.1"), timeout=LIMIT),
                                          a.accept_async())

        async def iterate():
            async for _ in a.completions():
                pass

        async def receive():
            await to_b.recv([Vec(a.alloc(8))])

        loop, failures = asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda _, about: failures.append(about))
        tasks = [asyncio.ensure_future(x) for x in (iterate(), receive(), to_b.wait_notification())]
        await asyncio.sleep(0)
        await loop.run_in_executor(None, a.close)
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(e) for e in ends] == [hawser.ClosedError, hawser.PeerClosedError, hawser.ClosedError]
        b.close()
        await asyncio.sleep(0.01)
        assert failures == []

    run(main())


def test_close_ends_an_iteration_without_any_event():
    async def main():
        context = hawser.Context()

        async def iterate():
            async for _ in context.completions():
                pass

        task = asyncio.ensure_future(iterate())
        await asyncio.sleep(0)
        context.close()
        with pytest.raises(hawser.ClosedError):
            await task

    run(main())


def test_one_loop_after_the_other(pair):
    async def main():
        await pair.to_a.notify(b"x")
        return await pair.to_b.wait_notification()

    assert [run(main()) for _ in range(3)] == [b"x"] * 3


def test_timer_of_an_earlier_loop_is_not_waited_for():
    with hawser.Context() as a, hawser.Context(caller_progress=True) as b:
        to_b, to_a = connect(a, b)
        inbox = b.alloc(8)

        async def receive(tag):
            return await to_a.recv([Vec(inbox)], tag=tag)

        async def soon():
            waiting = asyncio.ensure_future(receive(1))
            await asyncio.sleep(0)
            to_b.send([(b"x",)], tag=1)
            assert await waiting == 1

        async def later():
            op = to_a.recv([Vec(inbox)], tag=2)
            waiting = asyncio.ensure_future(asyncio.wait_for(op, LIMIT / 4))
            await asyncio.sleep(0.5)  # until the connection's channels are established, which causes events
            to_b.send([(b"yz",)], tag=2)
            while op.bytes == 0:  # this call ends the operation, so the loop's file descriptor reports nothing
                b.progress(0.1)
            start = time.monotonic()
            assert await waiting == 2
            assert time.monotonic() - start < 0.5  # a keepalive of the peer would also wake the loop, after seconds

        run(soon())  # the loop ends while the timer for the next check is pending
        run(later())


def test_cancelled_connect_leaves_no_peer():
    silent = socket.create_server(("127.0.0.1", 0))
    with hawser.Context() as a, hawser.Context() as b:
        port = a.listen("127.0.0.1")

        async def give_up(at):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(b.connect_async("127.0.0.1", at, timeout=5), 0.1)

        start = time.monotonic()
        run(give_up(silent.getsockname()[1]))
        assert time.monotonic() - start < 3  # the run does not wait for the attempt's thread

        lock, work = threading.Lock(), hawser._context._Connect._work
        with pytest.MonkeyPatch.context() as patch, lock:
            def late(call):
                call.started.set()
                with lock:
                    work(call)

            patch.setattr(hawser._context._Connect, "_work", late)
            run(give_up(port))
        peer = a.accept(LIMIT)  # the connection was established after the task was cancelled
        wait_until(lambda: peer.error is not None, "the end of the connection")
    silent.close()


def test_close_between_two_runs_of_the_loop_leaves_no_descriptor():
    def once():
        p, loop = Pair(), asyncio.new_event_loop()

        async def use():
            await p.to_a.notify(b"x")
            assert await p.to_b.wait_notification() == b"x"

        loop.run_until_complete(use())
        p.close()
        loop.close()

    def count():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    once()
    before = count()
    for _ in range(5):
        once()
    assert count() <= before


def test_two_loops_at_once_are_refused(pair):
    async def inner():
        with pytest.raises(RuntimeError, match="another event loop"):
            await pair.to_b.wait_notification()

    async def main():
        waiting = asyncio.ensure_future(pair.to_b.wait_notification())
        await asyncio.sleep(0)
        await asyncio.get_running_loop().run_in_executor(None, lambda: asyncio.run(inner()))
        await pair.to_a.notify(b"y")
        assert await waiting == b"y"

    run(main())


def test_a_wait_that_was_woken_in_vain_keeps_its_loop(pair):
    refused = []

    def other():
        try:
            asyncio.run(asyncio.wait_for(pair.to_b.wait_notification(), 1))
        except RuntimeError as e:
            refused.append(str(e))

    def start_other():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    async def main():
        loop = asyncio.get_running_loop()
        waiting = asyncio.ensure_future(pair.to_b.wait_notification())
        await asyncio.sleep(0)
        loop.call_soon(pair.a._hub._wake)  # as for an event of another peer
        loop.call_soon(start_other)  # runs before the task of the wait
        await asyncio.sleep(0.01)
        await pair.to_a.notify(b"z")
        assert await waiting == b"z"
        assert len(refused) == 1 and "another event loop" in refused[0]

    run(main())
