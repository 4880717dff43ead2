/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HW_DEVMEM_H
#define HW_DEVMEM_H

#include "transport/transport.h"

/* Fills env->state, for hw_devmem. -ENOMEM. */
int hw_devmem_open(struct hw_tp_env *env);
/* NULL state is allowed. */
void hw_devmem_close(struct hw_tp_env *env);

extern const struct hw_transport hw_devmem;

#endif
