# SPDX-License-Identifier: Apache-2.0
"""The write requests of the comparison. A request consists of pieces of the same size. Successive requests use
different memory (slots), so that less of their memory is in the CPU's caches."""
from compare.memory import make_pattern

BUFFER = 128 << 20
CASES = {  # pieces, bytes of each, requests until the first slot is used again
    "1024x64K": {"pieces": 1024, "size": 64 << 10, "slots": 2},
    "8192x4K": {"pieces": 8192, "size": 4 << 10, "slots": 4},
    "64K": {"pieces": 1, "size": 64 << 10, "slots": 64},
    "1M": {"pieces": 1, "size": 1 << 20, "slots": 64},
    "16M": {"pieces": 1, "size": 16 << 20, "slots": 8},
    "64M": {"pieces": 1, "size": 64 << 20, "slots": 2},
}


def lay_out(pieces, size, slots):
    """Returns a list of slots, each with its pieces as (local offset, remote offset, bytes). The pieces are in reverse
    order at the receiver, so that no two of them can be merged."""
    whole = pieces * size
    return [[(k * whole + i * size, k * whole + (pieces - 1 - i) * size, size) for i in range(pieces)]
            for k in range(slots)]


def make_expected(seed, case):
    """Returns the sender's bytes, and the receiver's expected bytes after every slot has been written."""
    sent = make_pattern(seed, case["pieces"] * case["size"] * case["slots"])
    if case["pieces"] == 1:
        return sent, sent
    expected = bytearray(len(sent))
    for slot in lay_out(**case):
        for at, to, n in slot:
            expected[to:to + n] = sent[at:at + n]
    return sent, expected
