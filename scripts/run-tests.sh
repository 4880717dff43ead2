#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of a build folder and ends with one line "N passed, N failed, N skipped".
#   [WITHOUT=REGEX] scripts/run-tests.sh BUILD [MESON TEST ARGUMENTS]
# WITHOUT: tests with such names are left to the other builds.
set -u
build=$1
shift
here=$(dirname "$0")
log=$build/meson-logs/testlog.json
rm -f "$log"

# Tests wait more than they compute: two at once for each CPU. ThreadSanitizer's compute.
: "${MESON_TESTTHREADS:=$(($(nproc) * 2))}"

# gcc 12's TSan dies at start where the kernel randomises more bits of mmap than it knows of (vm.mmap_rnd_bits > 28).
run=
if meson introspect --buildoptions "$build" | grep -q '"value": "thread"'; then
    MESON_TESTTHREADS=$(($(nproc) + 1))
    setarch -R true 2>/dev/null && run="setarch -R"
fi
export MESON_TESTTHREADS
# halt_on_error: UBSan reports and goes on by default, which no exit code would show.
export UBSAN_OPTIONS="${UBSAN_OPTIONS-halt_on_error=1:print_stacktrace=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS-halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tests/tsan.supp}"

# A plugin's process is a fork of a program with threads. glibc gives the stacks of those back there, and where ASan still
# takes them for stacks, other memory comes to lie: its reports are then false. So they are kept.
if meson introspect --buildoptions "$build" | grep -q '"value": "address'; then
    export GLIBC_TUNABLES="${GLIBC_TUNABLES-glibc.pthread.stack_cache_size=4294967296}"
fi

if [ -n "${WITHOUT-}" ]; then
    # shellcheck disable=SC2046 # names have no blanks
    set -- "$@" $(meson test -C "$build" --no-rebuild --list 2>/dev/null | sed 's,.* / ,,' | grep -vE "$WITHOUT")
fi

# The summary is the judge, and not meson: it reads the TAP, and knows exit 77 in a test of protocol 'tap' for a skip.
$run meson test -C "$build" --print-errorlogs "$@"
# What fails without a sanitizer's word is run once more, alone: a machine that stood still is no fault. It is named.
names=$(python3 "$here/summary.py" --again "$log")
if [ -n "$names" ]; then
    mv "$log" "$build/meson-logs/first.json"
    # shellcheck disable=SC2086 # names have no blanks
    $run meson test -C "$build" --no-rebuild --print-errorlogs --num-processes 1 -t 6 $names
    exec python3 "$here/summary.py" "$build/meson-logs/first.json" "$log"
fi
exec python3 "$here/summary.py" "$log"
