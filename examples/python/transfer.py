# SPDX-License-Identifier: Apache-2.0
"""Two processes: transfer.py receives and prints its port; transfer.py HOST PORT sends."""
import sys

import hawser

TEXT = b"moved and checked " * 100000

with hawser.Context(events=True) as context:
    if len(sys.argv) < 3:
        memory = context.register(bytearray(len(TEXT)))
        print("port", context.listen(), flush=True)
        sender = context.wait(30, most=1)[0].peer  # the peer that has arrived
        sender.notify(memory.export(write=True, peer=sender)).wait()
        context.wait(30, most=1)  # the sender's notification: every byte is in place
        print(memory.length, "bytes,", "all of them right" if memory.load() == TEXT else "some of them wrong")
    else:
        memory = context.register(TEXT)
        peer = context.connect(sys.argv[1], int(sys.argv[2]))
        region = hawser.Region(context.wait(30, most=1)[0].data)  # the receiver's notification
        peer.write([(memory, 0, memory.length, region, 0)], notification=b"done").wait()
