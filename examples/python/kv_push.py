#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One process pushes 1,024 blocks of a KV cache into the memory of another by one write, whose notification tells the
receiver that all of them are in place.
    kv_push.py              on one machine: receives, and prints its port
    kv_push.py HOST PORT    on the other: sends
Between machines both need the same secret: Context(key=...)."""
import sys

import hawser
from hawser import Event

BLOCKS, BLOCK, WAIT = 1024, 64 << 10, 30  # blocks; bytes of each; seconds that one side waits for the other


def content(block):
    return bytes([block % 251]) * BLOCK


def await_event(context, kind):
    """The next event of this kind; others are passed over."""
    while events := context.wait(WAIT, most=1):
        if events[0].event == kind:
            return events[0]
    sys.exit("nothing comes from the other process")


def receive(context, cache):
    print("port", context.listen(), flush=True)
    sender = await_event(context, Event.ARRIVED).peer
    sender.notify(cache.export(write=True, peer=sender))
    done = await_event(context, Event.NOTIFIED)  # every byte is in place
    for k in range(BLOCKS):
        assert cache.view[k * BLOCK:(k + 1) * BLOCK] == content(BLOCKS - 1 - k), f"block {k} is wrong"
    print(f"{done.data.decode()}: {BLOCKS} blocks of {BLOCK} bytes, all of them right")
    await_event(context, Event.DIED)  # the sender knows, and has closed


def send(context, cache, host, port):
    for k in range(BLOCKS):
        cache.view[k * BLOCK:(k + 1) * BLOCK] = content(k)
    receiver = context.connect(host, port, timeout=WAIT)
    region = hawser.Region(await_event(context, Event.NOTIFIED).data)
    # Which block goes where: here, in the reverse order.
    blocks = [(cache, k * BLOCK, BLOCK, region, (BLOCKS - 1 - k) * BLOCK) for k in range(BLOCKS)]
    receiver.write(blocks, notification=b"request 7", timeout=WAIT).wait()


with hawser.Context(events=True) as context:
    cache = context.alloc(BLOCKS * BLOCK)
    if len(sys.argv) < 3:
        receive(context, cache)
    else:
        send(context, cache, sys.argv[1], int(sys.argv[2]))
