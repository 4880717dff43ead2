#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A trainer sends its weights, 64 tensors of 2 MiB, to three receivers at the same time, and each receiver verifies the bytes.
A receiver that is slow or dies does not stop the others.
    weights.py [slow|dies]               four processes on this machine; the third receiver may be slow or die
    weights.py receive [slow|dies]       on each receiver's machine; prints its port
    weights.py send HOST:PORT ...        on the trainer's machine
Between machines all processes need the same secret in a file, KEY_FILE (head -c 32 /dev/urandom >FILE)."""
import asyncio
import hashlib
import os
import pathlib
import random
import subprocess
import sys
import time

import hawser
from hawser import Event

TENSORS, TENSOR, BUCKET, WAIT = 64, 2 << 20, 8, 30  # tensors; bytes per tensor; tensors per write; s to wait for a peer


def open_context(**options):
    path = os.environ.get("KEY_FILE")
    return hawser.Context(key=pathlib.Path(path).read_bytes() if path else None, **options)


def run_receiver(fault=""):
    # A slow receiver drives its connections itself, and pauses for a long time between calls.
    with open_context(events=True, caller_progress=fault == "slow") as context, context.alloc(TENSORS * TENSOR) as weights:
        print("port", context.listen(), flush=True)
        while events := context.wait(WAIT, most=1):
            event = events[0]
            if event.event == Event.ARRIVED:
                event.peer.notify(weights.export(write=True, peer=event.peer))
            elif event.event == Event.NOTIFIED and len(event.data) == hashlib.sha256().digest_size:  # the last notification
                same = hashlib.sha256(weights.view).digest() == event.data
                event.peer.notify(b"verified" if same else b"wrong").wait(WAIT)
            elif event.event == Event.NOTIFIED and fault == "dies":
                os._exit(3)
            elif event.event == Event.DIED:  # the trainer has closed
                return
            if fault == "slow":
                time.sleep(0.3)
        sys.exit("the trainer sent nothing")


async def send_to(context, address, weights, digest):
    """Sends all tensors to one receiver, and returns the result of the receiver's verification."""
    host, port = address.rsplit(":", 1)
    peer = await context.connect_async(host, int(port), timeout=WAIT)
    region = hawser.Region(await peer.wait_notification())
    for first in range(0, TENSORS, BUCKET):
        tensors = [(weights, k * TENSOR, TENSOR, region, k * TENSOR) for k in range(first, first + BUCKET)]
        await peer.write(tensors, notification=b"bucket", timeout=WAIT)
    peer.notify(digest)
    return (await asyncio.wait_for(peer.wait_notification(), WAIT)).decode()


async def send_to_all(addresses):
    """Sends to all receivers at the same time. Returns how many of them have not verified the weights."""
    with open_context() as context, context.alloc(TENSORS * TENSOR) as weights:
        weights.view[:] = random.Random(7).randbytes(weights.length)
        digest, begun = hashlib.sha256(weights.view).digest(), time.perf_counter()

        async def send_and_tell(address):
            try:
                said = await send_to(context, address, weights, digest)
            except (hawser.HawserError, asyncio.TimeoutError) as e:
                said = f"failed, {type(e).__name__}: {e}"
            took = time.perf_counter() - begun
            print(f"{address}: {TENSORS} tensors, {weights.length} bytes, {said}, after {took:.2f} s", flush=True)
            return said == "verified"
        return (await asyncio.gather(*map(send_and_tell, addresses))).count(False)


def run_all(fault):
    receivers = [subprocess.Popen([sys.executable, __file__, "receive", *extra], stdout=subprocess.PIPE, text=True)
                 for extra in ([], [], [fault] if fault else [])]
    try:
        ports = [r.stdout.readline().split()[1] for r in receivers]
        return asyncio.run(send_to_all([f"127.0.0.1:{port}" for port in ports]))
    finally:
        for r in receivers:
            r.terminate()
            r.communicate()


if __name__ == "__main__":
    if sys.argv[1:2] == ["receive"]:
        run_receiver(*sys.argv[2:])
    elif sys.argv[1:2] == ["send"]:
        sys.exit(asyncio.run(send_to_all(sys.argv[2:])))
    else:  # with "dies", one receiver must fail
        sys.exit(run_all(*sys.argv[1:2] or [""]) != (sys.argv[1:] == ["dies"]))
