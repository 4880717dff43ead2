# SPDX-License-Identifier: Apache-2.0
"""Tests data transfer between two processes: every type of operation, lists, batches and completions."""
import hashlib
import math
import os
import random
import threading
from collections.abc import Sequence

import pytest

import hawser
from conftest import LIMIT, take_notification, wait_until
from hawser import Event, Notify, Read, Recv, Region, Send, Vec, Write

SIZE = 1 << 20


def content(size=SIZE):
    return bytes(k * 7 % 256 for k in range(size))


def test_write_lands_at_the_peer(context, server):
    data = bytearray(random.Random(1).randbytes(SIZE))
    memory = context.register(data)
    assert server.peer.write([Vec(memory, region=server.region)]).result(LIMIT) == SIZE
    assert server.ask("sum") == hashlib.sha256(data).digest()


def test_read_fetches_the_peer_s_bytes(context, server):
    data = bytearray(SIZE)
    op = server.peer.read([Vec(context.register(data), region=server.region)])
    assert op.result(LIMIT) == SIZE and op.bytes == SIZE
    assert data == content()


def test_list_of_blocks_goes_where_each_says(context, server):
    data = bytearray(random.Random(2).randbytes(SIZE))
    memory, block = context.register(data), SIZE // 256
    where = list(range(256))
    random.Random(3).shuffle(where)
    server.peer.write([(memory, i * block, block, server.region, w * block) for i, w in enumerate(where)]).wait(LIMIT)
    expected = bytearray(SIZE)
    for i, w in enumerate(where):
        expected[w * block:(w + 1) * block] = data[i * block:(i + 1) * block]
    assert server.ask("sum") == hashlib.sha256(expected).digest()


def test_short_bytes_need_no_registration(context, server):
    server.peer.write([(b"first", 0, None, server.region, 0), Vec(memoryview(b"xsecondx")[1:-1], region=server.region,
                                                                 remote_offset=100)]).wait(LIMIT)
    expected = bytearray(content())
    expected[:5], expected[100:106] = b"first", b"second"
    assert server.ask("sum") == hashlib.sha256(expected).digest()


def test_send_meets_the_receive_of_its_tag(context, server):
    a, b = bytearray(300), bytearray(300)
    one, two = (server.peer.recv([Vec(context.register(x))], tag=tag) for x, tag in ((a, 1), (b, 2)))
    server.peer.notify(b"send 200 2").wait(LIMIT)
    assert two.result(LIMIT) == 200 and b[:201] == content()[:200] + b"\0"
    assert not one.done()
    server.peer.notify(b"send 100 1").wait(LIMIT)
    assert one.result(LIMIT) == 100 and a[:101] == content()[:100] + b"\0"


def test_receive_at_the_peer_gives_the_message_s_length(context, server):
    assert server.peer.notify(b"recv 5000 9").result(LIMIT) == 0
    server.peer.send([Vec(context.register(bytes(4000)))], tag=9).wait(LIMIT)
    assert take_notification(server.peer) == b"4000"
    assert server.ask("sum") == hashlib.sha256(bytes(4000) + content()[4000:]).digest()


def test_regions_that_an_iteration_creates(pair):
    """A sequence or generator may create its regions, so that nothing else refers to them."""
    mine = pair.b.alloc(4096)
    theirs = [pair.a.alloc(4096) for _ in range(2)]
    keys = [m.export(write=True) for m in theirs]

    class Blocks(Sequence):
        def __len__(self):
            return 512

        def __getitem__(self, i):
            if i >= 512:
                raise IndexError
            return mine, 8 * i, 8, Region(keys[i % 2]), 8 * i

    for start in (lambda: pair.to_a.write(Blocks()), lambda: pair.to_a.write(b for b in Blocks()),
                  lambda: pair.to_a.submit([hawser.Write(Blocks())])[0]):
        data = os.urandom(4096)
        mine.store(data)
        start().wait(LIMIT)
        blocks = [theirs[i % 2].load(8 * i, 8) for i in range(512)]
        assert b"".join(blocks) == data


def test_notification_of_a_write_comes_with_its_data(pair):
    mine, region, theirs = pair.memory(4096)
    mine.view[:] = b"k" * 4096
    op = pair.to_a.write([Vec(mine, region=region)], notification=b"request 7")
    assert take_notification(pair.to_b) == b"request 7"
    assert theirs.view == b"k" * 4096
    op.wait(LIMIT)
    pair.to_a.write([Vec(mine, region=region)], notification=b"").wait(LIMIT)
    assert take_notification(pair.to_b) == b""


def test_notifications_come_in_order_and_of_any_size(pair):
    sent = [bytes([k]) * n for k, n in enumerate((0, 1, 4096, 4097, 262144, 3))]
    for data in sent:
        pair.to_a.notify(data)
    assert [take_notification(pair.to_b) for _ in sent] == sent
    assert pair.to_b.notification() is None


def test_batch_gives_handles_and_completions(pair):
    mine, region, theirs = pair.memory(64)
    mine.view[:] = bytes(range(64))
    inbox = pair.a.register(bytearray(8))
    receive = pair.to_b.recv([Vec(inbox)], stream=3, tag=4)
    ops = pair.to_a.submit([Write([Vec(mine, 0, 32, region, 32)], user=2**64 - 1), Send([Vec(mine, 0, 8)], stream=3, tag=4),
                            Notify(data=b"batch"), Read([Vec(mine, 40, 8, region, 40)], timeout=LIMIT)])
    assert ops[0] is None and len(ops) == 4
    assert [op.result(LIMIT) for op in ops[1:]] == [8, 0, 8]
    done, = pair.b.wait(LIMIT)
    assert (done.event, done.user, done.error, done.length) == (Event.ENDED, 2**64 - 1, None, 32)
    assert done.peer is pair.to_a
    assert receive.result(LIMIT) == 8 and take_notification(pair.to_b) == b"batch"
    assert theirs.view[32:] == bytes(range(32))


def test_batch_of_a_thousand(pair):
    mine, region, theirs = pair.memory(8000)
    mine.view[:] = random.Random(4).randbytes(8000)
    ops = pair.to_a.submit(Write([(mine, k * 8, 8, region, k * 8)]) for k in range(1000))
    for op in ops:
        op.wait(LIMIT)
    assert theirs.view == mine.view


def test_batch_stops_at_the_first_that_fails_at_once(pair):
    mine, region, theirs = pair.memory(16)
    mine.view[:] = b"0123456789abcdef"
    with pytest.raises(hawser.BoundsError) as e:
        pair.to_a.submit([Write([(mine, 0, 4, region, 0)]), Write([(mine, 8, 9, region, 0)]),
                          Write([(mine, 4, 4, region, 4)])])
    first, = e.value.started
    first.wait(LIMIT)
    assert theirs.view == b"0123" + bytes(12)


def test_post_ends_as_a_completion(pair):
    inbox = pair.a.register(bytearray(4))
    pair.to_b.post(Recv([Vec(inbox)]), user=5)
    assert pair.a.poll() == []
    pair.to_a.send([(b"abcdefgh", 0, 4, None, 0)]).wait(LIMIT)
    done, = pair.a.wait(LIMIT)
    assert (done.user, done.length, inbox.load()) == (5, 4, b"abcd")


def test_completion_of_a_failure_has_its_error(pair):
    inbox = pair.a.register(bytearray(4))
    pair.to_b.post(Recv([Vec(inbox)]), user=6)
    send = pair.to_a.send([(b"abcdefgh", 0, 8, None, 0)])
    done, = pair.a.wait(LIMIT)
    assert isinstance(done.error, hawser.MessageSizeError) and done.user == 6
    with pytest.raises(hawser.MessageSizeError):
        send.wait(LIMIT)


def test_events_tell_of_arrival_notification_and_death():
    with hawser.Context(events=True) as a, hawser.Context() as b:
        to_a = b.connect("127.0.0.1", a.listen("127.0.0.1"), timeout=LIMIT)
        arrived, = a.wait(LIMIT, most=1)
        assert arrived.event == Event.ARRIVED and not arrived.peer.closed
        to_a.notify(b"hello").wait(LIMIT)
        said, = a.wait(LIMIT, most=1)
        assert (said.event, said.data, said.length, said.peer) == (Event.NOTIFIED, b"hello", 5, arrived.peer)
        to_a.close()
        died, = a.wait(LIMIT, most=1)
        assert died.event == Event.DIED and died.peer is arrived.peer
        assert isinstance(died.error, hawser.PeerClosedError)
        with pytest.raises(hawser.ArgumentError, match="events"):
            a.accept(0)


def test_operation_that_is_dropped_goes_on(pair):
    mine, region, theirs = pair.memory(1 << 20)
    pair.to_b.recv([Vec(theirs)])
    assert pair.to_a.send([Vec(b"received", 0)]).result(LIMIT) == 8 and theirs.load(0, 8) == b"received"
    mine.view[:] = random.Random(5).randbytes(1 << 20)
    for _ in range(20):
        pair.to_a.write([Vec(mine, region=region)], notification=b"end")
    for _ in range(20):
        assert take_notification(pair.to_b) == b"end"
    assert theirs.view == mine.view


def test_region_says_what_may_be_done(pair):
    memory = pair.a.alloc(100)
    region = Region(memory.export(10, 20, read=True))
    assert (region.length, region.readable, region.writable) == (20, True, False)


def test_timeouts_are_seconds(pair):
    inbox = pair.a.register(bytearray(4))
    op = pair.to_b.recv([Vec(inbox)], timeout=0.05)
    with pytest.raises(hawser.DeadlineError):
        op.wait(LIMIT)
    op = pair.to_b.recv([Vec(inbox)], timeout=math.inf)
    with pytest.raises(hawser.NotReadyError):
        op.wait(0.01)
    op.cancel()
    with pytest.raises(hawser.CanceledError):
        op.wait(LIMIT)
    assert isinstance(op.error, hawser.CanceledError)


def test_waits_without_a_limit(pair):
    op = pair.to_b.recv([Vec(pair.a.alloc(4))])
    threading.Timer(0.3, op.cancel).start()  # after more than one call into the library
    with pytest.raises(hawser.CanceledError):
        op.wait(math.inf)
    port = pair.b.listen("127.0.0.1")
    other = threading.Timer(0.3, lambda: pair.a.connect("127.0.0.1", port))
    other.start()
    pair.b.accept(math.inf)
    other.join()


def test_caller_progress_needs_no_thread():
    with hawser.Context(caller_progress=True) as a, hawser.Context() as b:
        port = b.listen("127.0.0.1")
        to_b = a.connect("127.0.0.1", port, timeout=LIMIT)
        memory = b.alloc(8)
        region = Region(memory.export(write=True))
        to_b.write([(b"progress", 0, 8, region, 0)]).wait(LIMIT)
        assert memory.load() == b"progress"
        to_a = b.accept(LIMIT)
        to_a.notify(b"now")
        wait_until(lambda: a.progress(0.1), "work to do")
        assert take_notification(to_b) == b"now"


def test_statistics_count_bytes(pair):
    mine, region, _ = pair.memory(1 << 16)
    pair.to_a.write([Vec(mine, region=region)]).wait(LIMIT)
    assert sum(row["tx_bytes"] for row in pair.to_a.channels()) == 1 << 16
    assert any(row["state"] == "used" for row in pair.to_a.paths())


def test_knobs_and_version():
    environment, default, unit, text = hawser.knobs()["window"]
    assert environment == "HAWSER_WINDOW" and default and unit == "bytes" and text
    assert hawser.version().count(".") == 2


def test_log_gets_lines():
    lines = []
    with hawser.Context(log=lambda level, line: lines.append((level, line))) as a, hawser.Context() as b:
        b.connect("127.0.0.1", a.listen("127.0.0.1"), timeout=LIMIT)
        a.accept(LIMIT)
    assert lines and all(0 <= level <= 3 and "\n" not in line for level, line in lines)
