/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel that is told a request as vb_request_build() made it: it knows the bytes and where they lie, and trusts
 * nothing else. For tests and fuzzing. */
#ifndef HW_TESTS_VERBS_KERNEL_H
#define HW_TESTS_VERBS_KERNEL_H

#include "verbs/schema/request.h"

/* NULL, or what is wrong: with the lengths, with where addresses point, with what lies before split and behind it, or
 * with what is said, which must be all that r says and nothing more. */
const char *vk_check(const struct vb_request *r, const uint8_t *out, size_t cap, uint64_t base, uint32_t split,
                     uint64_t header);
/* Runs it: every output gets bytes by seed, every new object a number by seed and its place, and the flags say so. Only
 * memory behind split is written. */
void vk_run(uint8_t *out, uint64_t base, uint32_t split, uint64_t header, const struct vb_attr_rule *rules,
            uint8_t seed);
uint8_t vk_byte(uint8_t seed, uint16_t id, uint32_t i); /* the byte that vk_run() writes */
uint64_t vk_number(uint8_t seed, uint16_t id);

#endif
