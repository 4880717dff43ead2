#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that the public header compiles without other headers, as strict C99, C11 and C++11, and also if included twice
# (TAP).
#   header.sh INCLUDE_DIR CC...
set -u
dir=$1
shift
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
# clang -pedantic warns about an empty translation unit, so the file contains a declaration, like users' files.
printf '#include <hawser.h>\n#include <hawser.h>\nint user(hawser *h);\n' >"$tmp/user.c"
cp "$tmp/user.c" "$tmp/user.cc"
n=0 failed=0

compiles() { # WHAT COMMAND...
    what=$1
    shift
    n=$((n + 1))
    if out=$("$@" -pedantic -Wall -Wextra -Werror -fsyntax-only -I "$dir" 2>&1); then
        echo "ok $n - $what"
    else
        echo "not ok $n - $what"
        printf '%s\n' "$out" | sed 's/^/# /'
        failed=1
    fi
}

compiles "hawser.h as C99" "$@" -std=c99 "$tmp/user.c"
compiles "hawser.h as C11" "$@" -std=c11 "$tmp/user.c"
compilers=
for cxx in g++ clang++; do
    command -v $cxx >/dev/null || continue
    # Test clang++ even if no C++ library's headers are installed, because hawser.h needs only C headers.
    compilers="$compilers $cxx"
    compiles "hawser.h as C++11 with $cxx" $cxx -std=c++11 "$tmp/user.cc"
done
if [ -z "$compilers" ]; then
    n=$((n + 1))
    echo "ok $n - hawser.h as C++11 # SKIP neither g++ nor clang++ is installed"
fi
echo "1..$n"
exit $failed
