#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzz target of a build folder for RUNS inputs, starting from its corpus; ends with "N passed, N failed,
# N skipped". New finds go to BUILD/fuzz-out/TARGET, crashes to BUILD/fuzz-out/crash-TARGET-*.
#   scripts/fuzz.sh BUILD RUNS [TARGET...]
set -u
build=$1 runs=$2
shift 2
source=$(dirname "$0")/..
passed=0 failed=0
out=$build/fuzz-out
for exe in "$build"/fuzz/fuzz_*; do
    [ -f "$exe" ] && [ -x "$exe" ] || continue
    name=$(basename "$exe")
    case " $* " in
    "  " | *" ${name#fuzz_} "*) ;;
    *) continue ;;
    esac
    corpus=$source/fuzz/corpus/${name#fuzz_}
    mkdir -p "$out/$name"
    start=$(date +%s)
    # shellcheck disable=SC2046 # none or one word
    if "$exe" -runs="$runs" -max_total_time="${FUZZ_SECONDS-300}" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$out/crash-$name-" "$out/$name" $([ -d "$corpus" ] && echo "$corpus") \
        >"$out/$name.log" 2>&1; then
        passed=$((passed + 1))
        did=$(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$name.log")
        echo "$name: ${did:-?} runs in $(($(date +%s) - start)) s"
        sed -n "s/^note: /$name: /p" "$out/$name.log"
    else
        failed=$((failed + 1))
        echo "FAILED: $name; its log ends:"
        tail -n 40 "$out/$name.log"
    fi
done
if [ $((passed + failed)) = 0 ]; then
    echo "FAILED: there is no fuzz target in $build/fuzz"
    failed=1
fi
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
