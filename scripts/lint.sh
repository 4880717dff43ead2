#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs clang-format on all C and C++ sources except vendored ones, runs clang-tidy on the C sources that the build
# compiles, and checks the licence lines.
#   scripts/lint.sh BUILD    (a build folder for clang, created if it does not exist)
set -u
build=$1
failed=0
# Vendored files keep their authors' style.
sources() {
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git ls-files -co --exclude-standard "$@"
    else
        find . -type f \( -path './build*' -prune -o -print \) | sed 's,^\./,,' | grep -E "$(echo "$@" | sed 's/\*\.\([a-z]*\)/\\.\1$/g; s/ /|/g')"
    fi | grep -v '/uapi/'
}

echo "lint: clang-format"
sources '*.c' '*.cc' '*.h' | xargs clang-format --dry-run -Werror || failed=1

echo "lint: licence lines"
for f in $(sources '*.c' '*.cc' '*.h' '*.sh' '*.py'); do
    case $f in lab/dmnic/*) licence=GPL-2.0 ;; *) licence=Apache-2.0 ;; esac # a kernel module has the kernel's licence
    head -n 2 "$f" | grep -q "SPDX-License-Identifier: $licence" || { echo "$f: no SPDX line at the top"; failed=1; }
done

echo "lint: clang-tidy"
[ -f "$build/build.ninja" ] || CC=clang meson setup -Dtests=enabled -Dfuzz=true -Db_lundef=false "$build" >/dev/null || exit 1
ninja -C "$build" build.ninja tool/build_commit.h >/dev/null || exit 1 # a generated header
# clang-tidy can parse only files that the build compiles, and a source outside bench/ that no target compiles is an error.
# kbuild compiles the kernel module, with warnings as errors (lab/vm/build-module).
python3 - "$build" $(sources '*.c' | grep -v '^lab/dmnic/') <<'END' >"$build/lint-files" || failed=1
import json, os, sys
build, files = sys.argv[1], sys.argv[2:]
known = {os.path.realpath(os.path.join(c["directory"], c["file"]))
         for c in json.load(open(os.path.join(build, "compile_commands.json")))}
rc = 0
for f in files:
    if os.path.realpath(f) in known:
        print(f)
    elif not f.startswith("bench/"):
        print(f"{f}: no build target compiles it", file=sys.stderr)
        rc = 1
sys.exit(rc)
END
tidy() {
    xargs -r -P "$(nproc)" -n 4 clang-tidy -p "$build" --quiet "$@" 2>>"$build/lint-stderr" || failed=1
}
: >"$build/lint-stderr"
alone='^(lib/base/base\.c|examples/)'
grep -E "$alone" "$build/lint-files" >"$build/lint-alone"
grep -Ev "$alone" "$build/lint-files" | grep -Ev '^(tests|fuzz|bench)/' >"$build/lint-rest"
grep -E '^(tests|fuzz|bench)/' "$build/lint-files" >"$build/lint-tests"
tidy <"$build/lint-alone"
# The analyzer stops exploring a function after max-nodes states. With a higher limit, clang 14 finds only additional
# false positives on long paths, and takes three times as long.
tidy --extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=max-nodes=60000 \
    --extra-arg=-include --extra-arg="$PWD/scripts/analyzer.h" --extra-arg="-I$PWD/lib" <"$build/lint-rest"
# The analyzer takes nine tenths of the time. It is disabled for tests, fuzz targets and benchmarks; sanitizers check
# the tests and fuzz targets at run time.
tidy --checks=-clang-analyzer-* --extra-arg="-I$PWD/lib" <"$build/lint-tests"
# clang-tidy prints the number of suppressed warnings to stderr. All other lines on stderr are error messages.
grep -v 'warnings\? \(generated\|treated\)\|^Suppressed\|^Use -header-filter' "$build/lint-stderr" >&2
[ $failed = 0 ] && echo "lint: clean"
exit $failed
