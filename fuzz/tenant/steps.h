/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that steps.c and request.c share. */
#ifndef HW_FUZZ_TENANT_STEPS_H
#define HW_FUZZ_TENANT_STEPS_H

#include "fuzz/tenant/tenant.h"

int step_fd(const struct t_thread *th, uint8_t b);     /* a file descriptor of the thread, or any number */
int step_device(const struct t_thread *th, uint8_t b); /* mostly a device */
void step_request(struct t_thread *th);
void step_doorbell(struct t_thread *th);

#endif
