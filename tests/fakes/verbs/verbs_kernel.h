/* SPDX-License-Identifier: Apache-2.0 */
/* A fake kernel that receives a request as vb_request_build() made it. For tests and fuzzing. */
#ifndef HW_TESTS_VERBS_KERNEL_H
#define HW_TESTS_VERBS_KERNEL_H

#include "verbs/schema/request.h"

/* Returns NULL, or a text that says what is wrong. Checks the lengths, the targets of addresses, the bytes before and
 * after split, and the contents, which must be those of r. */
const char *vk_check(const struct vb_request *r, const uint8_t *out, size_t cap, uint64_t base, uint32_t split,
                     uint64_t header);
/* Runs the request: fills outputs with vk_byte() and sets their flags, and gives new objects the numbers of
 * vk_number(). Writes only memory after split. */
void vk_run(uint8_t *out, uint64_t base, uint32_t split, uint64_t header, const struct vb_attr_rule *rules,
            uint8_t seed);
uint8_t vk_byte(uint8_t seed, uint16_t id, uint32_t i); /* byte i of output id */
uint64_t vk_number(uint8_t seed, uint16_t id);

#endif
