/* SPDX-License-Identifier: Apache-2.0 */
/* A fake kernel that receives a request as vb_request_build() made it. It uses only the request's bytes and addresses.
 * For tests and fuzzing. */
#ifndef HW_TESTS_VERBS_KERNEL_H
#define HW_TESTS_VERBS_KERNEL_H

#include "verbs/schema/request.h"

/* Returns NULL, or a text that says what is wrong. Checks the lengths, the targets of addresses, the bytes before and
 * after split, and the contents, which must be exactly those of r. */
const char *vk_check(const struct vb_request *r, const uint8_t *out, size_t cap, uint64_t base, uint32_t split,
                     uint64_t header);
/* Runs the request: every output gets bytes that seed determines, every new object gets a number that seed and its
 * place determine, and the flags are set. Writes only memory after split. */
void vk_run(uint8_t *out, uint64_t base, uint32_t split, uint64_t header, const struct vb_attr_rule *rules,
            uint8_t seed);
uint8_t vk_byte(uint8_t seed, uint16_t id, uint32_t i); /* the byte that vk_run() writes */
uint64_t vk_number(uint8_t seed, uint16_t id);

#endif
