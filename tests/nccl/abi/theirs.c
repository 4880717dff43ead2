/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin ABI's layout in NCCL's own headers. meson.build checks which of these headers are installed. */
#include <stddef.h>
#include <stdint.h>

#ifdef THEIR_NET
#include <nccl/net.h>
#endif
#ifdef THEIR_TUNER
#include <nccl/tuner.h>
#endif

#include "rows.h"

/* clang-format off */
const struct abi_row abi_theirs[] = {
#ifdef THEIR_NET
    ABI_COMMON
#endif
#ifdef THEIR_V6
    ABI_V6
#endif
#ifdef THEIR_V7
    ABI_V7
#endif
#ifdef THEIR_V8
    ABI_V8
#endif
#ifdef THEIR_V9
    ABI_V9
#endif
#ifdef THEIR_V10
    ABI_V10
#endif
#ifdef THEIR_V11
    ABI_V11
#endif
#ifdef THEIR_V12
    ABI_V12
#endif
#ifdef THEIR_TUNER
    ABI_TUNER
#endif
#ifdef THEIR_TUNER_V4
    ABI_TUNER_V4
#endif
#ifdef THEIR_TUNER_V5
    ABI_TUNER_V5
#endif
#ifdef THEIR_TUNER_V6
    ABI_TUNER_V6
#endif
    {NULL, NULL, 0, 0},
};
