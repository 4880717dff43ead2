/* SPDX-License-Identifier: Apache-2.0 */
/* Interface to PMIx's client library, which is loaded if a launcher provides PMIx but no address of rank 0. */
#ifndef HW_LAUNCH_PMIX_H
#define HW_LAUNCH_PMIX_H

#include "base/base.h"

struct launch_pmix;

/* Connects to the launcher's PMIx server. Sets *rank, and *size if PMIx provides the size. Fails with -ENOENT if there
 * is no suitable library, or with -EIO or -ENOMEM. */
int launch_pmix_open(struct launch_pmix **out, uint32_t *rank, uint32_t *size);
/* Disconnects and frees p, which may be NULL. */
void launch_pmix_close(struct launch_pmix *p);
/* Publishes text as this rank's value. Fails with -EIO or -ENOMEM. */
int launch_pmix_put(struct launch_pmix *p, const char *text);
/* Reads the text that rank 0 published. Waits for the text up to timeout_ms, but at least a second. Fails with -EIO. */
int launch_pmix_get(struct launch_pmix *p, char *text, size_t cap, int timeout_ms);
/* Reads the name of the host on which a rank runs. Fails with -EIO. */
int launch_pmix_host(struct launch_pmix *p, uint32_t rank, char *name, size_t cap);

#endif
