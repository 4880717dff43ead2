#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of a build folder. The last line is "N passed, N failed, N skipped".
#   [WITHOUT=REGEX] scripts/run-tests.sh BUILD [MESON TEST ARGUMENTS]
# WITHOUT: leaves out tests with names that match REGEX, which other builds run.
set -u
build=$1
shift
here=$(dirname "$0")
log=$build/meson-logs/testlog.json
rm -f "$log"

# Tests mostly wait, so run two per CPU. With ThreadSanitizer they mostly compute.
: "${MESON_TESTTHREADS:=$(($(nproc) * 2))}"

# A TSan program built with gcc 12 crashes at start if the kernel randomises more bits of mmap addresses than TSan
# supports (vm.mmap_rnd_bits > 28).
run=
if meson introspect --buildoptions "$build" | grep -q '"value": "thread"'; then
    MESON_TESTTHREADS=$(($(nproc) + 1))
    setarch -R true 2>/dev/null && run="setarch -R"
fi
export MESON_TESTTHREADS
# Without halt_on_error, UBSan reports an error and continues, and the exit status does not show the error.
export UBSAN_OPTIONS="${UBSAN_OPTIONS-halt_on_error=1:print_stacktrace=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS-halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tests/tsan.supp}"

# hawser runs a net plugin in a fork of a program that may have threads. In the child, glibc frees these threads' stacks, and
# other memory may be mapped where ASan still assumes stacks, which leads to false reports. A large stack cache keeps the stacks
# mapped.
if meson introspect --buildoptions "$build" | grep -q '"value": "address'; then
    export GLIBC_TUNABLES="${GLIBC_TUNABLES-glibc.pthread.stack_cache_size=4294967296}"
fi

if [ -n "${WITHOUT-}" ]; then
    # shellcheck disable=SC2046 # names have no spaces
    set -- "$@" $(meson test -C "$build" --no-rebuild --list 2>/dev/null | sed 's,.* / ,,' | grep -vE "$WITHOUT")
fi

# summary.py, not meson, decides whether tests passed. It reads the TAP output, and treats exit status 77 with protocol
# 'tap' as a skip.
$run meson test -C "$build" --print-errorlogs "$@"
# Tests that failed without a sanitizer's report are run again, one at a time, because the machine may have stalled. The
# summary reports those that then pass as unstable.
names=$(python3 "$here/summary.py" --again "$log")
if [ -n "$names" ]; then
    mv "$log" "$build/meson-logs/first.json"
    # shellcheck disable=SC2086 # names have no spaces
    $run meson test -C "$build" --no-rebuild --print-errorlogs --num-processes 1 -t 6 $names
    exec python3 "$here/summary.py" "$build/meson-logs/first.json" "$log"
fi
exec python3 "$here/summary.py" "$log"
