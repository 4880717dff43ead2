#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that gather.ptx is the output of scripts/ptx.sh for gather.cu, that nvcc also compiles gather.cu, and that
# ptxas accepts gather.ptx for several architectures (TAP). Usage: ptx.sh ROOT
set -u
cd "$1" || exit 1
cuda=lib/mem/kernels
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
PATH=$PATH:/usr/local/cuda/bin
n=0 done=0 failed=0

result() { # RC TEXT; prints the log after a failure
    n=$((n + 1)) done=$((done + 1))
    if [ "$1" = 0 ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2"
        sed 's/^/# /' "$tmp/log"
        failed=1
    fi
}
skip() { # TEXT REASON
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2"
}

scripts/ptx.sh "$tmp/gather.ptx" >"$tmp/log" 2>&1
rc=$?
if [ $rc = 77 ]; then
    skip "gather.ptx is made of gather.cu" "$(cat "$tmp/log")"
else
    [ $rc != 0 ] || diff "$cuda/gather.ptx" "$tmp/gather.ptx" >"$tmp/log" || rc=1
    result $rc "gather.ptx is what scripts/ptx.sh makes of gather.cu"
fi

if command -v nvcc >/dev/null; then
    nvcc -Werror all-warnings -ptx -o "$tmp/nvcc.ptx" "$cuda/gather.cu" >"$tmp/log" 2>&1
    result $? "nvcc compiles gather.cu: $(nvcc --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')"
else
    skip "nvcc compiles gather.cu" "no nvcc"
fi

for arch in sm_70 sm_80 sm_90 sm_100; do
    what="ptxas takes gather.ptx for $arch, and spills no register"
    if ! command -v ptxas >/dev/null; then
        skip "$what" "no ptxas"
    elif ! ptxas --help | grep -q "'$arch'"; then
        skip "$what" "this ptxas does not know it"
    else
        ptxas -v -arch=$arch -o "$tmp/cubin" "$cuda/gather.ptx" >"$tmp/log" 2>&1 &&
            grep -q spill "$tmp/log" && ! grep -q '[1-9][0-9]* bytes spill' "$tmp/log"
        result $? "$what"
    fi
done
if [ $done = 0 ]; then
    echo "1..0 # SKIP neither clang 14 nor nvcc nor ptxas is here"
    exit 77
fi
echo "1..$n"
exit $failed
