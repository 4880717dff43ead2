/* SPDX-License-Identifier: Apache-2.0 */
/* Drops privileges before hawserd accepts its first client. */
#ifndef HW_HELPER_GUARD_H
#define HW_HELPER_GUARD_H

#include "base/base.h"

#include <sys/types.h>

/* Drops every capability except CAP_NET_ADMIN, for good; with user set, also becomes that user. -EPERM if CAP_NET_ADMIN
 * is missing. */
int hd_guard_caps(const char *user);
/* Drops access to all files except reading /proc, and the folders of the journal and the socket; also TCP connects and
 * signals to other processes. -EOPNOTSUPP: the kernel has no Landlock. Call it after hd_guard_caps(). */
int hd_guard_files(const char *state, const char *sock);
/* Blocks the system calls that hawserd does not need: such a call ends the process, and the journal then has what must
 * be undone. */
int hd_guard_calls(void);

#endif
