# SPDX-License-Identifier: Apache-2.0
"""TAP for tests in Python: ok(), skip(), and done(), which returns the exit status."""
import sys

count = failed = 0


def ok(good, what, *more):
    """Reports one test result. Prints `more` if the test failed."""
    global count, failed
    count += 1
    failed += not good
    print(f"{'' if good else 'not '}ok {count} - {what}")
    for m in () if good else more:
        print("".join(f"# {line}\n" for line in str(m).replace("\\n", "\n").splitlines()[:60]), end="")
    sys.stdout.flush()
    return good


def skip(what, why):
    global count
    count += 1
    print(f"ok {count} - {what} # SKIP {why}", flush=True)


def done():
    print(f"1..{count}")
    return 1 if failed else 0
