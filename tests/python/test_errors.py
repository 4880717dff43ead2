# SPDX-License-Identifier: Apache-2.0
"""Tests invalid use and failures: each raises its own exception with the library's message, and the context remains
usable."""
import errno
import re
import socket

import pytest

import hawser
from conftest import LIMIT, ROOT, connect, start_python, take_notification, wait_until
from hawser import Region, Vec


def test_every_code_of_the_header_has_a_class():
    named = {errno.EAGAIN: hawser.NotReadyError, errno.ETIMEDOUT: hawser.DeadlineError,
             errno.ECONNRESET: hawser.PeerDiedError, errno.ESHUTDOWN: hawser.PeerClosedError,
             errno.EPROTO: hawser.ProtocolError, errno.EACCES: hawser.AccessError, errno.EFAULT: hawser.BoundsError,
             errno.ESTALE: hawser.StaleRegionError, errno.EMSGSIZE: hawser.MessageSizeError,
             errno.ECANCELED: hawser.CanceledError, errno.EPROTONOSUPPORT: hawser.IncompatibleError}
    from hawser.errors import make_error
    for name in set(re.findall(r"-(E[A-Z0-9]+)\b", (ROOT / "include/hawser.h").read_text())):
        assert type(make_error(-getattr(errno, name), "")) is not hawser.HawserError, name
    for code, kind in named.items():
        error = make_error(-code, "what happened")
        assert type(error) is kind and isinstance(error, (OSError, hawser.HawserError))
        assert error.errno == code and str(error) == "what happened"
    assert type(make_error(-errno.ENOSPC, "")) is hawser.HawserError


def test_built_in_exceptions_catch_them():
    for kind, built_in in ((hawser.DeadlineError, TimeoutError), (hawser.PeerDiedError, ConnectionResetError),
                           (hawser.AccessError, PermissionError), (hawser.ArgumentError, ValueError),
                           (hawser.NotReadyError, BlockingIOError), (hawser.NoMemoryError, MemoryError)):
        with pytest.raises(built_in):
            raise kind(1, "text")


@pytest.mark.parametrize("vec, kind", [
    ((8, 57), hawser.BoundsError), ((65, 0), hawser.BoundsError), ((0, 64, 1), hawser.BoundsError),
    ((-1, 4), hawser.ArgumentError), ((0, -4), hawser.ArgumentError), ((0, 2**64), hawser.ArgumentError),
    ((0, 4, -1), hawser.ArgumentError), ((0.5, 4), hawser.ArgumentError)])
def test_offsets_outside_are_refused_at_once(pair, vec, kind):
    mine, region, theirs = pair.memory(64)
    offset, length, remote = (*vec, 0)[:3]
    with pytest.raises(kind):
        pair.to_a.write([(mine, offset, length, region, remote)])
    pair.to_a.write([(mine, 0, 64, region, 0)]).wait(LIMIT)  # the next operation is not affected


def test_rights_of_a_region_hold(pair):
    mine, theirs = pair.b.alloc(64), pair.a.alloc(64)
    with pytest.raises(hawser.AccessError, match="does not allow its region to be written"):
        pair.to_a.write([Vec(mine, region=Region(theirs.export(read=True)))])
    with pytest.raises(hawser.AccessError, match="does not allow its region to be read"):
        pair.to_a.read([Vec(mine, region=Region(theirs.export(write=True)))])
    with pytest.raises(hawser.ArgumentError):
        theirs.export()


def test_wrong_arguments_have_a_line(pair):
    mine, region, theirs = pair.memory(64)
    wrong = [lambda: pair.to_a.write([Vec(mine)]), lambda: pair.to_a.write([Vec("text", region=region)]),
             lambda: pair.to_a.write([Vec(mine, region=b"key")]), lambda: pair.to_a.write([(mine,) * 7]),
             lambda: pair.to_a.write([Vec(pair.a.alloc(8), region=region)]),
             lambda: pair.to_a.send([Vec(mine)], stream=-1), lambda: pair.to_a.send([Vec(mine)], tag=2**32),
             lambda: pair.to_a.write([Vec(mine, region=region)], timeout=-1),
             lambda: pair.to_a.write([Vec(mine, region=region)], timeout=float("nan")),
             lambda: pair.to_a.read([Vec(b"short", region=region)]), lambda: pair.to_a.close_stream(0),
             lambda: pair.to_a.close_stream(2**32), lambda: pair.a.alloc(0), lambda: pair.a.alloc(8, "disk"),
             lambda: theirs.export(-1, write=True), lambda: theirs.load(0, 65), lambda: theirs.load(-1, 2),
             lambda: theirs.store(b"x", -1), lambda: pair.a.poll(0), lambda: pair.a.accept(-1),
             lambda: pair.a.connect("127.0.0.1", 9, gpu=-1), lambda: pair.a.connect("127.0.0.1", 9, peer_gpu=-1),
             lambda: pair.a.listen("127.0.0.1", 70000), lambda: theirs.load(2**64, 1), lambda: theirs.store(b"x", 2**64),
             lambda: theirs.export(2**64, 1, read=True), lambda: theirs.export(0, 2**64, read=True),
             lambda: pair.a.alloc(2**64, "cuda"), lambda: pair.a.alloc(8, "cuda", 2**31),
             lambda: pair.to_a.submit([hawser.Write([Vec(mine)], user=2**64)])]
    for n, call in enumerate(wrong):
        with pytest.raises((ValueError, TypeError)) as e:
            call()
        assert str(e.value), n
    pair.to_a.write([Vec(mine, region=region)]).wait(LIMIT)


def test_objects_that_are_no_region_are_refused(pair):
    mine, _, theirs = pair.memory(64)
    key = theirs.export(write=True)
    for wrong in (theirs, mine, key, 7):
        with pytest.raises(hawser.ArgumentError, match=f"{type(wrong).__name__} in place of a Region") as e:
            pair.to_a.write([(mine, 0, 1, wrong, 0)])
        assert repr(key) not in str(e.value)  # a remote key is a secret


@pytest.mark.parametrize("length", [1 << 62, 1 << 80])
def test_too_much_memory(pair, length):
    with pytest.raises(hawser.NoMemoryError, match=f"cannot allocate {length} bytes"):
        pair.a.alloc(length)


def test_bounds_of_memory(pair):
    memory = pair.a.alloc(64)
    for call in (lambda: memory.store(b"12", 63), lambda: memory.load(60, 5), lambda: memory.export(60, 5, read=True)):
        with pytest.raises(hawser.BoundsError):
            call()


def test_too_much(pair):
    mine, region, _ = pair.memory(64)
    with pytest.raises(hawser.TooManyError, match="65536"):
        pair.to_a.write([(mine, 0, 1, region, 0)] * 65537)
    with pytest.raises(hawser.TooManyError, match="4096"):
        pair.to_a.send([Vec(bytes(4097))])
    with pytest.raises(hawser.ArgumentError, match="262144"):
        pair.to_a.notify(bytes(262145))


def test_keys_that_are_none(pair):
    key = pair.a.alloc(8).export(read=True)
    for wrong in (b"", key[:-1], key + b"x", bytes(64), bytes([key[0] ^ 1]) + key[1:]):
        with pytest.raises(hawser.ArgumentError):
            Region(wrong)
        with pytest.raises(hawser.ArgumentError):
            pair.a.revoke(wrong)
    with pytest.raises(TypeError):
        Region("x" * 64)


def test_revoked_region_is_stale(pair):
    mine, theirs = pair.b.alloc(64), pair.a.alloc(64)
    key = theirs.export(write=True)
    pair.a.revoke(key)
    with pytest.raises(hawser.StaleRegionError):
        pair.to_a.write([Vec(mine, region=Region(key))]).wait(LIMIT)
    with pytest.raises(hawser.StaleRegionError):
        pair.a.revoke(key)


def test_export_to_a_peer_of_another_context_is_refused(pair):
    with pytest.raises(hawser.ArgumentError, match="peer of another context"):
        pair.a.alloc(8).export(read=True, peer=pair.to_a)


def test_export_to_one_peer_is_for_no_other(pair):
    with hawser.Context() as c:
        to_c, c_to_a = connect(pair.a, c)
        theirs, mine = pair.a.alloc(8), pair.b.alloc(8)
        region = Region(theirs.export(write=True, peer=to_c))
        with pytest.raises((hawser.AccessError, hawser.StaleRegionError)):
            pair.to_a.write([Vec(mine, region=region)]).wait(LIMIT)
        c_to_a.write([(b"for only", 0, 8, region, 0)]).wait(LIMIT)
        assert theirs.load() == b"for only"


def test_short_receive_fails_on_both_sides(context, server):
    server.peer.notify(b"recv 10 1").wait(LIMIT)
    with pytest.raises(hawser.MessageSizeError):
        server.peer.send([Vec(bytes(11))], tag=1).wait(LIMIT)
    assert take_notification(server.peer) == b"MessageSizeError"


def test_killed_peer_gives_a_typed_error(context, server):
    receive = server.peer.recv([Vec(context.alloc(8))])
    server.peer.notify(b"die")
    with pytest.raises((hawser.PeerDiedError, hawser.PeerClosedError)) as e:
        receive.wait(LIMIT)
    assert type(e.value) is hawser.PeerDiedError and str(e.value)
    assert isinstance(server.peer.error, hawser.PeerDiedError)
    with pytest.raises(hawser.PeerDiedError):
        server.peer.write([Vec(b"x", region=server.region)])
    with pytest.raises(hawser.PeerDiedError):
        server.peer.notification()


def test_peer_that_closes_gives_another(context, server):
    receive = server.peer.recv([Vec(context.alloc(8))])
    server.peer.notify(b"close")
    with pytest.raises(hawser.PeerClosedError):
        receive.wait(LIMIT)
    wait_until(lambda: server.peer.error is not None, "the peer's end")
    assert isinstance(server.peer.error, hawser.PeerClosedError)


def test_connect_fails_by_its_reason(context):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(hawser.RefusedError):
            context.connect("127.0.0.1", port, timeout=LIMIT)
        taken.listen()
        with pytest.raises(hawser.AddressInUseError):
            context.listen("127.0.0.1", port)
        with pytest.raises(hawser.DeadlineError):  # the kernel accepts the connection, but nothing is sent on it
            context.connect("127.0.0.1", port, timeout=0.2)
    with pytest.raises(hawser.NoKeyError):
        context.connect("192.0.2.1", 1, timeout=1)
    with hawser.Context() as listener:
        with pytest.raises(hawser.NoDeviceError, match="nonesuch0"):
            context.connect("127.0.0.1", listener.listen("127.0.0.1"), nics="nonesuch0", timeout=LIMIT)
    with pytest.raises(hawser.ArgumentError):
        context.connect("127.0.0.1", 65536)


def test_job_keys_must_agree():
    with hawser.Context(key=b"k" * 16) as a, hawser.Context(key=b"q" * 16) as b, hawser.Context() as c:
        port = a.listen("127.0.0.1")
        with pytest.raises(hawser.AccessError):
            b.connect("127.0.0.1", port, timeout=LIMIT)
        assert c.connect("127.0.0.1", port, key=b"k" * 16, timeout=LIMIT).error is None
    with pytest.raises(hawser.ArgumentError, match="key"):
        hawser.Context(key=b"short")


def test_context_refuses_wrong_knobs():
    with pytest.raises(hawser.ArgumentError, match="no_such_knob"):
        hawser.Context(no_such_knob=1)
    with pytest.raises(hawser.ArgumentError, match="window"):
        hawser.Context(window="many")
    with hawser.Context(window=1 << 20, threads=1):
        pass


def test_second_listener_is_busy(context):
    context.listen("127.0.0.1")
    with pytest.raises(hawser.BusyError):
        context.listen("127.0.0.1")
    with pytest.raises(hawser.AddressError):
        with hawser.Context() as c:
            c.listen("192.0.2.1")


def test_nothing_comes_in_time(context):
    context.listen("127.0.0.1")
    for timeout in (0, 0.15):
        with pytest.raises(hawser.NotReadyError):
            context.accept(timeout)
        assert context.wait(timeout) == []


def test_library_that_is_not_there():
    import os
    child = start_python("-c", "import hawser", env={**os.environ, "HAWSER_LIBRARY": "/nonexistent/lib.so"}, stderr=-1)
    _, said = child.communicate(timeout=LIMIT)
    assert child.returncode == 1 and "ImportError: cannot load /nonexistent/lib.so" in said and "HAWSER_LIBRARY" in said
