# SPDX-License-Identifier: Apache-2.0
"""Tests one wheel: an agent writes and reads 64 descriptors, with notifications, in the memory of an agent in another
process. With the argument "refused", checks that no engine is created and that the reason is reported. The exit status
is 0 on success.
Run by nixl_run.py."""
import sys
import zlib

from nixl_agents import Agent, Peer, error_of, nixl_agent, nixl_agent_config


def move():
    a, b = Agent("a"), Peer("b")
    a.add(b.card)
    a.buf[:] = range(0, 256) if a.buf.size == 256 else list(range(256)) * (a.buf.size // 256)
    pairs = [(i << 14, 1 << 14) for i in range(64)]
    assert a.move("WRITE", "b", b.card[1], pairs, pairs, notif=b"written") == "DONE"
    assert b.ask("notes", of="a", n=1)["notes"] == [b"written".hex()]
    assert b.ask("sum")["sum"] == zlib.crc32(a.buf)
    b.ask("fill", byte=9)
    assert a.move("READ", "b", b.card[1], pairs, pairs, notif=b"read") == "DONE"
    assert (a.buf == 9).all()
    assert b.ask("notes", of="a", n=1)["notes"] == [b"read".hex()]
    b.end()


def refused():
    agent = nixl_agent("a", nixl_agent_config(backends=[]))
    assert error_of(lambda: agent.create_backend("HAWSER")) == "nixlBackendError"
    reason = agent.get_plugin_params("HAWSER")["error"]
    assert "NIXL 9.9.9 was not tested" in reason and "1.0.0" in reason, reason


if __name__ == "__main__":
    refused() if sys.argv[1:] == ["refused"] else move()
