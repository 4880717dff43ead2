#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes lib/mem/kernels/gather.ptx of gather.cu. The library carries that file, so that building it takes no CUDA.
#   scripts/ptx.sh [OUT]
# By clang 14, Debian 12's: another version would make other code. tests/house/ptx.sh makes it again and compares.
# PTX 7.0 for sm_70: drivers of CUDA 11.0 and later compile it, for Volta and everything after. nvcc 13 makes none that
# is older than PTX 9.0.
set -eu
cd "$(dirname "$0")/.."
out=${1-lib/mem/kernels/gather.ptx}
clang=
for c in clang-14 clang; do
    if "$c" --version 2>/dev/null | grep -q 'clang version 14\.'; then
        clang=$c
        break
    fi
done
if [ -z "$clang" ]; then
    echo "ptx.sh: clang 14 is needed, and is not here" >&2
    exit 77
fi
{
    echo "// Made by scripts/ptx.sh of gather.cu; edit that."
    # --cuda-path: it shall not look for a CUDA of this machine.
    "$clang" -x cuda --cuda-path=/var/empty --cuda-gpu-arch=sm_70 -Xclang -target-feature -Xclang +ptx70 \
        --cuda-device-only -nocudainc -nocudalib -O3 -Wall -Wextra -Werror -S -o - lib/mem/kernels/gather.cu |
        sed -e '1,/^$/{/^\/\/$/d;/^$/d}'
} >"$out.new"
mv "$out.new" "$out"
