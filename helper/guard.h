/* SPDX-License-Identifier: Apache-2.0 */
/* What hawserd gives up before it takes its first client. */
#ifndef HW_HELPER_GUARD_H
#define HW_HELPER_GUARD_H

#include "base/base.h"

#include <sys/types.h>

/* Every capability but CAP_NET_ADMIN, for good; with user set, becomes that user too. -EPERM without it. */
int hd_guard_caps(const char *user);
/* All files but what lies in /proc, to be read, and in the folders of the journal and of the socket; connecting by TCP;
 * signals to others. -EOPNOTSUPP: the kernel has no Landlock. After hd_guard_caps(). */
int hd_guard_files(const char *state, const char *sock);
/* The system calls that it does not need. Whoever makes one ends the process; the journal holds what is to be undone
 * then. */
int hd_guard_calls(void);

#endif
