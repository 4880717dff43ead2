#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that the public header compiles alone, as strict C99 and C11 and as C++11, and twice in one file (TAP).
#   header.sh INCLUDE_DIR CC...
set -u
dir=$1
shift
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
# clang -pedantic warns of an empty translation unit, so the file has a declaration, like users' files.
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
    # clang++ is useful even without a C++ library's headers, because hawser.h needs only C's.
    compilers="$compilers $cxx"
    compiles "hawser.h as C++11 with $cxx" $cxx -std=c++11 "$tmp/user.cc"
done
if [ -z "$compilers" ]; then
    n=$((n + 1))
    echo "ok $n - hawser.h as C++11 # SKIP neither g++ nor clang++ is installed"
fi
echo "1..$n"
exit $failed
