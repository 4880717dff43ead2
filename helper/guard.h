/* SPDX-License-Identifier: Apache-2.0 */
/* Drops privileges before hawserd accepts its first client. */
#ifndef HW_HELPER_GUARD_H
#define HW_HELPER_GUARD_H

#include "base/base.h"

#include <sys/types.h>

/* Permanently drops all capabilities except CAP_NET_ADMIN. If user is not NULL, also changes to this user. Fails with
 * -EPERM if CAP_NET_ADMIN is missing. */
int hd_guard_caps(const char *user);
/* Restricts file access to reading /proc and to the folders of the journal and the socket. If the kernel supports it,
 * also forbids TCP connect(), and signals to processes other than children. Fails with -EOPNOTSUPP if the kernel has no
 * Landlock. Call it after hd_guard_caps(). */
int hd_guard_files(const char *state, const char *sock);
/* Installs a filter that allows only the system calls that hawserd needs. Any other call kills the process; the changes
 * to undo then remain in the journal. */
int hd_guard_calls(void);

#endif
