#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Searches the whole failover model (failover.pml) with spin, first without and then with defects, which spin has to
find. Prints TAP.

    failover.py CC [NAME...]        NAME selects the checks whose names contain it, such as sound (no defect) or planted

Each defect is a macro in the model. If the model no longer has the macro, the check fails."""
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import tap

MODEL = pathlib.Path(__file__).with_name("failover.pml")
SECONDS = 500  # limit for one search on a busy machine
MEGABYTES = 2000
SENDERS = ("CLIENT", "SERVER")
DEPTH = 10000  # limit for the length of a path; a search with a longer path fails
PAN = ["-w", "-DNOREDUCE", "-DCOLLAPSE", "-DVECTORSZ=512", f"-DMEMLIM={MEGABYTES}"]

# Name, options, minimum number of states. Spin has to find no error and reach all states. If spin finds fewer states,
# the model has lost steps.
SOUND = [
    ("the client sends, three failures", "-DSENDER=CLIENT -DFAILURES=3", 3000000),
    ("the server sends, three failures", "-DSENDER=SERVER -DFAILURES=3", 2000000),
    ("the server may never start, a rail may never come back; the client sends",
     "-DSENDER=CLIENT -DMEETS -DCUTS", 1000000),
    ("the server may never start, a rail may never come back; the server sends",
     "-DSENDER=SERVER -DMEETS -DCUTS", 800000),
]

# Name, sender, macro, other options.
PLANTED = [
    ("a rail is settled before the peer has ended it", "CLIENT", "DEFECT_SETTLED_EARLY", ""),
    ("a side receives after its last word", "SERVER", "DEFECT_RECEIVED_LATE", ""),
    ("the last word is ignored: all is sent again", "CLIENT", "DEFECT_WORD_IGNORED", ""),
    ("the last word is taken for more than it says", "SERVER", "DEFECT_WORD_EXAGGERATED", ""),
    ("a frame that was delivered is not counted", "CLIENT", "DEFECT_NOT_COUNTED", ""),
    ("a frame is counted before it is delivered", "SERVER", "DEFECT_COUNTED_EARLY", ""),
    ("the last word on an older generation is taken for this one's", "CLIENT", "DEFECT_OLD_WORD", ""),
    ("the last word on a newer generation is taken for this one's", "SERVER", "DEFECT_NEW_WORD", ""),
    ("the client says no last word when it connects again", "SERVER", "DEFECT_SILENT_ASK", ""),
    ("the server forgets its word on the last connection that the client had", "CLIENT", "DEFECT_SERVER_FORGETS", ""),
    ("the server takes it that the client had each connection up", "SERVER", "DEFECT_CLIENT_HAD_ALL", ""),
    ("a connection starts before the old one is settled", "CLIENT", "DEFECT_STARTED_UNSETTLED", ""),
    ("a last word that its rail loses is not sent again", "CLIENT", "DEFECT_WORD_NOT_SENT_AGAIN", "-DCUTS"),
    ("the server gives a generation up and does not say so", "CLIENT", "DEFECT_VOID_UNSAID", "-DMEETS"),
    ("the client gives a generation up and does not say so", "SERVER", "DEFECT_VOID_UNSAID", "-DCUTS"),
    ("an older last word displaces a newer one", "CLIENT", "DEFECT_OLDER_DISPLACES", "-DCUTS"),
]


def run(command, folder, seconds=SECONDS):
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=seconds)
    except FileNotFoundError:
        return None, f"{command[0]} is not installed; scripts/deps.sh installs it"
    except subprocess.TimeoutExpired:
        return None, f"it does not end within {seconds} s"
    return done.returncode, done.stdout + done.stderr


def search(cc, options, compiler=("-O2", "-DSAFETY"), table=24, flags=()):
    """Returns (number of errors, spin's output). The number is None if the search is incomplete."""
    with tempfile.TemporaryDirectory() as folder:
        for command in (["spin", *options.split(), "-a", MODEL], [*cc.split(), *PAN, *compiler, "-o", "pan", "pan.c"]):
            rc, said = run(command, folder)
            if rc != 0:
                return None, said
        rc, said = run(["./pan", f"-m{DEPTH}", "-b", f"-w{table}", *flags], folder)
    errors = re.search(r"errors: (\d+)", said)
    whole = rc == 0 and "Search not completed" not in said and "max search depth" not in said
    if rc is None or not errors or (errors[1] == "0" and not whole):
        return None, said
    return int(errors[1]), said


def read_number(pattern, text):
    found = re.search(pattern, text)
    return float(found[1]) if found else 0.0


def check_sound(cc, name, options, least):
    begin = time.monotonic()
    errors, said = search(cc, options)
    states = int(read_number(r"(\d+) states, stored", said))
    # Spin prints a line "(1 of 30 states)" for each process, because the final state of a process is never reached.
    unreached = re.findall(r'state \d+, "(?!-end-)[^"]*"', said)
    good = errors == 0 and states >= least and not unreached
    tap.ok(good, name, f"errors: {errors}; {states} states, of at least {least}", *unreached, said)
    print(f"# {states} states, {read_number(r'([0-9.]+).total actual memory', said):.0f} MB, "
          f"{time.monotonic() - begin:.0f} s with compiling", flush=True)


def check_end(cc, name, sender):
    """Checks that there is no cycle, so that the model always ends. check_sound() checks the final states."""
    errors, said = search(cc, f"-DSENDER={sender}", ("-O2", "-DNP"), flags=["-l"])
    tap.ok(errors == 0, name, f"errors: {errors}", said)


def check_found(cc, name, sender, macro, more):
    if not re.search(rf"#if(n?def | !?defined\(){macro}\b|#elif !?defined\({macro}\)", MODEL.read_text(encoding="utf-8")):
        tap.ok(False, name, f"the model has no {macro}")
        return
    errors, said = search(cc, f"-DSENDER={sender} -D{macro} {more}", ("-O0", "-DSAFETY"), table=20)
    # The error has to be a failed assertion, and not a path or a state that was too large.
    tap.ok(bool(errors) and "assertion violated" in said, name, f"errors: {errors}", said)


def main(cc, *names):
    checks = [(f"sound: {row[0]}", check_sound, row[1:]) for row in SOUND]
    checks += [(f"sound: nothing is repeated without end; the {s.lower()} sends", check_end, (s,)) for s in SENDERS]
    checks += [(f"planted, found: {row[0]}", check_found, row[1:]) for row in PLANTED]
    for name, check, row in checks:
        if not names or any(n in name for n in names):
            check(cc, name, *row)
    return tap.done()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
