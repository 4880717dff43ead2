/* SPDX-License-Identifier: Apache-2.0 */
/* A fake kernel that receives requests built by vb_request_build(), for tests and fuzzing. */
#ifndef HW_TESTS_VERBS_KERNEL_H
#define HW_TESTS_VERBS_KERNEL_H

#include "verbs/schema/request.h"

/* Returns NULL, or a text that describes the error. Checks the lengths, the targets of addresses, the bytes before and
 * after the split, and that the contents are equal to r. */
const char *vk_check(const struct vb_request *r, const uint8_t *out, size_t cap, uint64_t base, uint32_t split,
                     uint64_t header);
/* Runs the request: fills outputs with vk_byte() and sets their flags, and assigns the numbers of vk_number() to new
 * objects. Writes only to memory after the split. */
void vk_run(uint8_t *out, uint64_t base, uint32_t split, uint64_t header, const struct vb_attr_rule *rules,
            uint8_t seed);
uint8_t vk_byte(uint8_t seed, uint16_t id, uint32_t i); /* byte i of output id */
uint64_t vk_number(uint8_t seed, uint16_t id);

#endif
