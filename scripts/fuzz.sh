#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the named fuzz targets of a build folder, or all, each for RUNS inputs or FUZZ_SECONDS seconds (default 300), whichever
# comes first. Each target begins with its corpus. Runs as many targets in parallel as there are CPUs. The last line is
# "N passed, N failed, N skipped". New inputs are stored in BUILD/fuzz-out/fuzz_TARGET, and crashes in
# BUILD/fuzz-out/crash-fuzz_TARGET-*.
#   scripts/fuzz.sh BUILD RUNS [TARGET...]
set -u
build=$1 runs=$2
shift 2
source=$(dirname "$0")/..
out=$build/fuzz-out

run_target() { # EXE: runs the target; prints one line and the target's notes or, after a failure, the end of the log
    local name corpus start did
    name=$(basename "$1")
    corpus=$source/fuzz/corpus/${name#fuzz_}
    rm -rf "$out/$name.bad"
    mkdir -p "$out/$name"
    start=$SECONDS
    # shellcheck disable=SC2046 # the output is one word or empty
    if "$1" -runs="$runs" -max_total_time="${FUZZ_SECONDS-300}" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$out/crash-$name-" "$out/$name" $([ -d "$corpus" ] && echo "$corpus") \
        >"$out/$name.log" 2>&1; then
        did=$(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$name.log")
        echo "$name: ${did:-?} runs in $((SECONDS - start)) s"
        sed -n "s/^note: /$name: /p" "$out/$name.log"
    else
        touch "$out/$name.bad"
        echo "FAILED: $name; its log ends:
$(tail -n 40 "$out/$name.log")"
    fi
}

targets=()
for exe in "$build"/fuzz/fuzz_*; do
    if [ ! -f "$exe" ] || [ ! -x "$exe" ]; then continue; fi
    name=$(basename "$exe")
    case " $* " in
    "  " | *" ${name#fuzz_} "*) targets+=("$exe") ;;
    esac
done
[ ${#targets[@]} != 0 ] || echo "FAILED: $build/fuzz has no fuzz target"
running=0
for exe in "${targets[@]}"; do
    if [ $running = "$(nproc)" ]; then
        wait -n
        running=$((running - 1))
    fi
    run_target "$exe" &
    running=$((running + 1))
done
wait
failed=$((${#targets[@]} == 0))
for exe in "${targets[@]}"; do
    [ ! -e "$out/$(basename "$exe").bad" ] || failed=$((failed + 1))
done
echo "$((${#targets[@]} - failed > 0 ? ${#targets[@]} - failed : 0)) passed, $failed failed, 0 skipped"
[ $failed = 0 ]
