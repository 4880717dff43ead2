/* SPDX-License-Identifier: Apache-2.0 */
/* PMIx's client library, loaded when a launcher has PMIx and does not say where rank 0 is. */
#ifndef HW_LAUNCH_PMIX_H
#define HW_LAUNCH_PMIX_H

#include "base/base.h"

struct launch_pmix;

/* Joins the launcher's server. *rank and *size are set where PMIx knows them. -ENOENT: there is no library, -EIO. */
int launch_pmix_open(struct launch_pmix **out, uint32_t *rank, uint32_t *size);
/* NULL is allowed. */
void launch_pmix_close(struct launch_pmix *p);
/* Lets other ranks see text as this rank's. -EIO. */
int launch_pmix_put(struct launch_pmix *p, const char *text);
/* What rank 0 has put, waiting for it up to timeout_ms. -EIO. */
int launch_pmix_get(struct launch_pmix *p, char *text, size_t cap, int timeout_ms);
/* The name of the host where a rank is. -EIO. */
int launch_pmix_host(struct launch_pmix *p, uint32_t rank, char *name, size_t cap);

#endif
