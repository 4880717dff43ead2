#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiles gather.cu to lib/mem/kernels/gather.ptx. The library contains that file, so that its build does not need CUDA.
#   scripts/ptx.sh [OUT]
# The compiler is Debian 12's clang 14, because another version would generate different code. tests/house/ptx.sh compiles the
# file again and compares. The output is PTX 7.0 for sm_70, which drivers of CUDA 11.0 and later compile for Volta and later
# GPUs. nvcc 13 cannot generate versions older than PTX 9.0.
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
    echo "ptx.sh: clang 14 is required, but is not installed" >&2
    exit 77
fi
{
    echo "// Generated from gather.cu by scripts/ptx.sh; edit gather.cu instead."
    # --cuda-path prevents clang from using an installed CUDA.
    "$clang" -x cuda --cuda-path=/var/empty --cuda-gpu-arch=sm_70 -Xclang -target-feature -Xclang +ptx70 \
        --cuda-device-only -nocudainc -nocudalib -O3 -Wall -Wextra -Werror -S -o - lib/mem/kernels/gather.cu |
        sed -e '1,/^$/{/^\/\/$/d;/^$/d}'
} >"$out.new"
mv "$out.new" "$out"
