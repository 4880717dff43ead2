# SPDX-License-Identifier: Apache-2.0
"""The other process of the tests. Prints its port, sends the key of its memory to each peer, and executes commands that
arrive as notifications:
    sum            replies with the SHA-256 of the memory
    send N TAG     sends the first N bytes of the memory with this tag
    recv N TAG     receives up to N bytes with this tag, then replies with the message's length or the error's class
    close          closes the peer
    die            kills itself
Usage: server.py BYTES"""
import hashlib
import os
import signal
import sys

import hawser
from hawser import Event

LIMIT = 60  # seconds, longer than a test waits for this process


def serve(size):
    context = hawser.Context(events=True)
    memory = context.alloc(size)
    memory.view[:] = bytes(k * 7 % 256 for k in range(size))
    print(context.listen("127.0.0.1"), flush=True)
    receives = {}  # maps the number of a receive to its peer
    while events := context.wait(LIMIT):
        for event in events:
            if event.event == Event.ARRIVED:
                event.peer.notify(memory.export(read=True, write=True, peer=event.peer))
            elif event.event == Event.DIED:
                event.peer.close()
            elif event.event == Event.ENDED and event.user in receives:
                said = type(event.error).__name__ if event.error else str(event.length)
                receives.pop(event.user).notify(said.encode())
            elif event.event == Event.NOTIFIED:
                obey(context, memory, event.peer, event.data.decode().split(), receives)


def obey(context, memory, peer, words, receives):
    if words[0] == "sum":
        peer.notify(hashlib.sha256(memory.view).digest())
    elif words[0] == "send":
        peer.send([(memory, 0, int(words[1]), None, 0)], tag=int(words[2]))
    elif words[0] == "recv":
        number = len(receives) + 1
        receives[number] = peer
        peer.post(hawser.Recv([hawser.Vec(memory, 0, int(words[1]))], tag=int(words[2])), user=number)
    elif words[0] == "close":
        peer.close()
    elif words[0] == "die":
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
