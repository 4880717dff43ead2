# SPDX-License-Identifier: Apache-2.0
"""Tests cases that must not crash: closing while operations are in flight, use after close, threads, exit, fork,
Ctrl-C."""
import copy
import gc
import os
import pickle
import random
import signal
import threading
import warnings

import pytest

import hawser
from conftest import LIMIT, Pair, connect, start_python, wait_until
from hawser import Vec

ENDS = (hawser.ClosedError, hawser.PeerClosedError, hawser.PeerDiedError)


def test_memory_is_busy_while_an_operation_uses_it(pair):
    memory = pair.a.alloc(64)
    op = pair.to_b.recv([Vec(memory)])
    with pytest.raises(hawser.BusyError):
        memory.close()
    assert not memory.closed
    op.cancel()
    with pytest.raises(hawser.CanceledError):
        op.wait(LIMIT)
    memory.close()
    memory.close()
    assert memory.closed
    with pytest.raises(hawser.ClosedError):
        pair.to_b.recv([Vec(memory)])


def test_objects_are_kept_while_an_operation_uses_them(pair):
    def start():
        return pair.to_b.recv([Vec(pair.a.register(bytearray(1 << 20)))])

    op = start()
    gc.collect()
    pair.to_a.send([Vec(pair.b.register(bytes(1 << 20)))]).wait(LIMIT)
    assert op.result(LIMIT) == 1 << 20


def test_context_closes_with_operations_under_way():
    p = Pair()
    ops = [p.to_b.recv([Vec(p.a.alloc(4096))]) for _ in range(10)]
    p.a.close()
    for op in ops:
        with pytest.raises(hawser.PeerClosedError):
            op.wait(LIMIT)
        assert op.done() and isinstance(op.error, hawser.PeerClosedError) and op.bytes == 0
        op.cancel()
    p.close()


def test_use_after_close_raises(pair):
    mine, region, theirs = pair.memory(8)
    op = pair.to_a.write([Vec(mine, region=region)])
    op.wait(LIMIT)
    key = theirs.export(read=True)
    pair.to_a.close()
    pair.to_a.close()
    of_peer = [lambda: pair.to_a.write([Vec(mine, region=region)]), lambda: pair.to_a.notify(b""),
               lambda: pair.to_a.notification(), lambda: pair.to_a.error, lambda: pair.to_a.channels(),
               lambda: pair.to_a.submit([hawser.Notify()]), lambda: pair.to_a.post(hawser.Notify()),
               lambda: pair.to_a.close_stream(1), lambda: mine.export(read=True, peer=pair.to_a)]
    pair.a.close()
    pair.a.close()
    of_context = [lambda: pair.a.listen("127.0.0.1"), lambda: pair.a.accept(0), lambda: pair.a.poll(), lambda: pair.a.wait(0),
                  lambda: pair.a.connect("127.0.0.1", 1), lambda: pair.a.alloc(8), lambda: pair.a.register(bytearray(8)),
                  lambda: pair.a.revoke(key), lambda: pair.a.progress(), lambda: theirs.load(), lambda: theirs.store(b""),
                  lambda: theirs.export(read=True), lambda: pair.to_b.notify(b"")]
    for n, call in enumerate(of_peer + of_context):
        with pytest.raises(hawser.ClosedError, match="closed"):
            call()
            pytest.fail(f"call {n} did not raise")
    assert op.result(0) == 8 and pair.to_a.closed and pair.a.closed


def test_owners_of_handles_cannot_be_copied(pair):
    mine, region, theirs = pair.memory(8)
    op = pair.to_a.write([Vec(mine, region=region)])
    for owner in (pair.a, pair.to_b, mine, op):
        for copy_it in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=f"a hawser.{type(owner).__name__} cannot be copied or pickled"):
                copy_it(owner)
    op.wait(LIMIT)
    for twin in (copy.copy(region), copy.deepcopy(region), pickle.loads(pickle.dumps(region))):
        mine.store(b"by twins")
        theirs.store(bytes(8))
        pair.to_a.write([Vec(mine, region=twin)]).wait(LIMIT)
        assert theirs.load() == b"by twins"


def test_with_closes():
    with hawser.Context() as a, hawser.Context() as b:
        _, to_a = connect(a, b)
        with to_a, a.alloc(8) as memory:
            assert not to_a.closed and not memory.closed
        assert to_a.closed and memory.closed
    assert a.closed and b.closed


def test_context_that_is_dropped_is_closed():
    def threads():
        n = 0
        for task in os.listdir("/proc/self/task"):
            try:
                with open(f"/proc/self/task/{task}/comm") as f:
                    n += f.read().startswith("hawser/")
            except (FileNotFoundError, ProcessLookupError):  # the thread has already exited
                pass
        return n

    before = threads()
    context = hawser.Context()
    context.alloc(8)
    assert threads() > before
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        del context
        gc.collect()
    assert threads() == before
    assert [w.category for w in seen] == [ResourceWarning]


def test_calls_need_no_lock_of_cffi_after_the_import():
    """cffi holds a lock while it looks up a function or type. A thread that closes a context in the garbage collector,
    or in a signal handler, may have interrupted such a look-up, and would wait for itself."""
    text = """
class Held:
    def __enter__(self):
        raise AssertionError("cffi looks up a name")
    def __exit__(self, *error):
        pass
assert hasattr(hawser._library.ffi, "_lock")
hawser._library.ffi._lock = Held()
q = Pair(log=lambda level, line: None, key=b"k" * 16, window=1 << 20)
mine, region, theirs = q.memory(64)
q.to_a.write([Vec(mine, region=region)], timeout=LIMIT, notification=b"n").wait()
q.to_a.read([Vec(mine, region=region)]).wait()
q.to_a.submit([hawser.Notify(data=b"x")])[0].wait()
q.to_a.post(hawser.Notify(data=b"y"), user=1)
q.to_b.recv([Vec(theirs)]).cancel()
assert q.b.wait(LIMIT)[0].user == 1 and q.to_b.notification() is not None and q.to_b.error is None
assert q.to_a.channels() and q.to_a.paths() and hawser.knobs() and hawser.version()
q.to_a.close_stream(1)
q.a.revoke(theirs.export(read=True))
theirs.store(theirs.load())
q.a.progress()
q.a.register(bytearray(8)).close()
try:
    q.a.alloc(8, "cuda")
except hawser.HawserError:
    pass
class Tensor:
    def __init__(self):
        import ctypes
        self.bytes, self.shape = (ctypes.c_char * 8)(), (ctypes.c_int64 * 1)(8)
        self.tensor = (ctypes.c_int64 * 7)(ctypes.addressof(self.bytes), 1, 1 | 8 << 40 | 1 << 48,
                                                 ctypes.addressof(self.shape))
    def __dlpack_device__(self):
        return 1, 0
    def __dlpack__(self):
        import ctypes
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)
assert q.a.register(Tensor()).length == 8
q.close()
"""
    assert run_script(text) == (0, "", "")


def test_hundred_threads_in_one_context(pair):
    wrong = []

    def work(k):
        try:
            rng = random.Random(k)
            mine, region, theirs = pair.memory(512)
            for _ in range(10):
                mine.view[:] = data = rng.randbytes(512)
                pair.to_a.write([Vec(mine, region=region)]).wait(LIMIT)
                mine.view[:] = bytes(512)
                pair.to_a.read([Vec(mine, region=region)]).wait(LIMIT)
                if mine.view != data or theirs.view != data:
                    wrong.append(k)
            mine.close()
            theirs.close()
        except BaseException as e:
            wrong.append(e)

    run_threads(work, 100)
    assert wrong == []


def run_threads(work, n):
    threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(LIMIT)
        assert not t.is_alive()


@pytest.mark.parametrize("what", ["peer", "context", "far context", "memory"])
def test_close_beside_threads_that_use_it(what):
    pair = Pair()
    mine, region, _ = pair.memory(64)
    begun, wrong, ends = threading.Semaphore(0), [], []

    def work(_):
        try:
            for k in range(10**9):
                op = pair.to_a.write([(mine, 0, 64, region, 0)])
                if k == 3:
                    begun.release()
                op.wait(LIMIT)
        except ENDS as e:
            ends.append(e)
        except BaseException as e:
            wrong.append(e)

    def close(_):
        for _ in range(8):
            assert begun.acquire(timeout=LIMIT)
        closing = {"peer": pair.to_a, "context": pair.b, "far context": pair.a, "memory": mine}[what]
        wait_until(lambda: not is_busy(closing.close), "a moment without operations")

    run_threads(lambda k: close(k) if k == 8 else work(k), 9)
    assert wrong == [] and len(ends) == 8
    pair.close()


def is_busy(close):
    try:
        close()
    except hawser.BusyError:
        return True
    return False


@pytest.mark.parametrize("what", ["peer", "context", "memory"])
def test_close_waits_for_calls_that_may_hold_the_handle(pair, what):
    memory = pair.b.alloc(64)
    closing = {"peer": pair.to_a, "context": pair.b, "memory": memory}[what]
    token, other = object(), -1  # a call of another thread
    pair.b._calls.calls[token] = other
    thread = threading.Thread(target=closing.close, daemon=True)
    thread.start()
    wait_until(lambda: closing.closed, "the mark")
    thread.join(0.05)
    still = thread.is_alive() and not pair.to_a._freed
    del pair.b._calls.calls[token]
    thread.join(LIMIT)
    assert still and not thread.is_alive()


def test_close_ends_waits_of_other_threads():
    pair = Pair()
    op = pair.to_b.recv([Vec(pair.a.alloc(8))])
    started, ends = threading.Barrier(4), []

    def work(k):
        started.wait(LIMIT)
        try:
            [lambda: op.wait(), lambda: pair.a.wait(), lambda: pair.a.accept(), pair.a.close][k]()
        except ENDS as e:
            ends.append(type(e))

    run_threads(work, 4)
    assert sorted(e.__name__ for e in ends) == ["ClosedError", "ClosedError", "PeerClosedError"]
    pair.close()


def test_peer_closes_beside_a_thread_that_accepts():
    for _ in range(20):
        pair, ends = Pair(), []

        def accept():
            try:
                pair.a.accept()
            except hawser.ClosedError as e:
                ends.append(e)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        pair.to_b.close()
        pair.close()
        thread.join(LIMIT)
        assert len(ends) == 1


def test_close_within_a_call_of_its_own_thread_is_refused(pair):
    """Tests close() in a signal handler, simulated with a token like that of an interrupted call."""
    pair.a._calls.calls[token := object()] = threading.get_ident()
    for close in (pair.a.close, pair.to_b.close):
        with pytest.raises(RuntimeError, match="signal handler"):
            close()
    del pair.a._calls.calls[token]
    assert not pair.a.closed and not pair.to_b.closed


@pytest.mark.parametrize("what", ["a context", "a peer", "memory", "a wait"])
def test_close_after_ctrl_c_at_the_start_of_a_block(pair, what):
    """Tests Ctrl-C in contextlib: the traceback keeps the block's token while an enclosing `with` closes the object."""
    memory = pair.b.alloc(8)

    def interrupted():
        if what == "a wait":
            for _ in pair.b._slices(LIMIT):
                raise KeyboardInterrupt
        block = {"a context": pair.b._use, "a peer": pair.to_a._use,
                 "memory": lambda: hawser._memory.use_memory(memory)}[what]()
        block.__enter__()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        with pair.b, pair.to_a, memory:
            interrupted()
    assert pair.b.closed


HEAD = """
import os, signal, sys, threading, hawser
from conftest import Pair, LIMIT
from hawser import Vec, Region
p = Pair()
inbox = p.a.alloc(1 << 20)
op = p.to_b.recv([Vec(inbox)])
def quietly(call):
    def work():
        try:
            call()
        except hawser.HawserError:
            pass
    threading.Thread(target=work, daemon=True).start()
"""


def run_script(text, *flags):
    child = start_python(*flags, "-c", HEAD + text, stderr=-1)
    said, complaint = child.communicate(timeout=LIMIT)
    return child.returncode, said, complaint


@pytest.mark.parametrize("end", [
    "", "sys.exit(0)", "del p, op, inbox",
    "quietly(op.wait)",
    "quietly(p.a.wait)",
    "quietly(p.a.accept)",
    "big = p.b.alloc(64 << 20); r = Region(p.a.alloc(64 << 20).export(write=True))\n"
    "ops = [p.to_a.write([Vec(big, region=r)]) for _ in range(4)]",
    "p.itself = p; p.op = op",
    "q = Pair(log=lambda level, line: None); sys.kept = q",
    "import socket; silent = socket.create_server(('127.0.0.1', 0)); \n"
    "quietly(lambda: p.a.connect('127.0.0.1', silent.getsockname()[1], timeout=60)); silent.accept()"])
def test_interpreter_exits_with_operations_under_way(end):
    assert run_script(end) == (0, "", "")


def test_exit_closes_in_an_orderly_way(context):
    """Tests exit with a context that Python never finalizes."""
    port = context.listen("127.0.0.1")
    child = start_python("-c", "import ctypes, sys, hawser\nc = hawser.Context()\nctypes.pythonapi.Py_IncRef(ctypes.py_object(c))\n"
                         "c.connect('127.0.0.1', int(sys.argv[1])).notify(b'here').wait()", str(port))
    peer = context.accept(LIMIT)
    assert child.wait(LIMIT) == 0
    wait_until(lambda: peer.error is not None, "the peer's end")
    assert type(peer.error) is hawser.PeerClosedError
    child.communicate()


def test_fork_leaves_the_child_nothing_to_use():
    code, said, complaint = run_script("""
done = p.to_a.notify(b"x"); done.wait(LIMIT)
pid = os.fork()
if pid == 0:
    raised = 0
    uses = [lambda: p.to_a.notify(b""), op.done, op.wait, op.cancel, lambda: op.bytes, p.a.poll, lambda: p.a.accept(0),
            lambda: p.a.alloc(8), inbox.load, lambda: p.a.connect("127.0.0.1", 1), lambda: p.a.wait(0)]
    for use in uses:
        try:
            use()
        except hawser.ForkedError as e:
            raised += "fork" in str(e)
    for thing in (p.to_a, inbox, p.a, p.b):
        thing.close()
    del op
    q = Pair()
    q.to_a.notify(b"of the child").wait(LIMIT)
    q.close()
    sys.exit(0 if raised == len(uses) else 9)
_, status = os.waitpid(pid, 0)
print(os.waitstatus_to_exitcode(status))
p.to_a.send([(b"still here", 0, 10, None, 0)]).wait(LIMIT)
print(op.result(LIMIT), inbox.load(0, 10))
""", "-W", "ignore::DeprecationWarning")  # Python 3.12 warns of fork in a process with threads
    assert (code, said, complaint) == (0, "0\n10 b'still here'\n", "")


def main_sleeps(pid):
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rpartition(")")[2].split()[0] == "S"


@pytest.mark.parametrize("wait", ["op.wait()", "op.result(1000)", "p.a.wait()", "p.a.wait(1000)", "p.a.accept()",
                                  "p.a.connect('127.0.0.1', silent.getsockname()[1], timeout=3)"])
def test_ctrl_c_ends_a_wait_and_loses_nothing(wait):
    child = start_python("-c", HEAD + f"""
import socket
silent = socket.create_server(("127.0.0.1", 0))
try:
    print("waiting", flush=True)
    {wait}
except KeyboardInterrupt:
    print("interrupted", flush=True)
p.to_a.send([(b"after", 0, 5, None, 0)]).wait(LIMIT)
print(op.result(LIMIT), inbox.load(0, 5))
p.close()
""", stderr=-1)
    assert child.stdout.readline() == "waiting\n"
    wait_until(lambda: main_sleeps(child.pid), "the child's wait")
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=LIMIT) == ("interrupted\n5 b'after'\n", "")
    assert child.returncode == 0


def test_interrupted_thread_start_gives_up_the_connection(pair, monkeypatch):
    """Tests Ctrl-C just after connect() has started its thread: the connection is given up, and the thread runs."""
    start, running = threading.Thread.start, []

    def interrupt(thread):
        work = thread._target
        thread._target = lambda: (running.append(thread), work())
        start(thread)
        raise KeyboardInterrupt

    port = pair.b.listen("127.0.0.1", 0)
    monkeypatch.setattr(threading.Thread, "start", interrupt)
    with pytest.raises(KeyboardInterrupt):
        pair.a.connect("127.0.0.1", port)
    monkeypatch.undo()
    assert len(running) == 1
    running[0].join(LIMIT)
    assert [p for p in pair.a._peers.values() if not p._closed] == [pair.to_b]


def test_interrupted_operation_start_leaks_no_handle(pair, monkeypatch):
    """Tests Ctrl-C just after the library has started an operation: the operation continues, and the context closes
    normally."""
    from hawser import _peer
    mine, region, theirs = pair.memory(8)
    mine.view[:] = b"go on..."

    class Interrupting:
        def __getattr__(self, name):
            function = getattr(original, name)
            if name != "hawser_write":
                return function

            def start(*arguments):
                assert function(*arguments) == 0
                raise KeyboardInterrupt
            return start

    original = _peer.lib
    monkeypatch.setattr(_peer, "lib", Interrupting())
    try:
        pair.to_a.write([Vec(mine, region=region)])
        pytest.fail("was not interrupted")
    except KeyboardInterrupt:
        pass
    monkeypatch.undo()
    assert len(pair.b._orphans) == 1  # the context frees it
    wait_until(lambda: theirs.view == b"go on...", "the bytes")


def test_interrupted_poll_keeps_its_completion(pair):
    pair.to_a.post(hawser.Notify(data=b"x"), user=77)
    convert = pair.b._convert

    def interrupt(*arguments):
        pair.b._convert = convert
        raise KeyboardInterrupt

    pair.b._convert = interrupt
    with pytest.raises(KeyboardInterrupt):
        pair.b.wait(LIMIT)
    assert [c.user for c in pair.b.poll()] == [77]
