/* SPDX-License-Identifier: Apache-2.0 */
/* Reports refusals as lines of JSON in the audit file, if there is one, and as lines of text in the operator's log. */
#ifndef HW_VERBS_AUDIT_H
#define HW_VERBS_AUDIT_H

#include "base/base.h"

#include <sys/types.h>

struct vb_audit {
    int fd; /* the audit file, or -1; all brokers share it (O_APPEND, one write() for each line) */
    const struct hw_logger *log;
    /* Private to audit.c. Refusals above a certain rate are counted and not written. */
    uint64_t window;
    unsigned written, dropped;
};

struct vb_refusal {
    /* program is the thread's comm, or NULL if it is unknown. The application chooses the comm, so it is escaped when
     * printed. */
    const char *container, *program, *device;
    pid_t pid;
    const char *command; /* for example "REG_MR length=4096" */
    const char *rule;    /* for example "mr_bytes = 64MiB" or "schema" */
    const char *text;    /* the reason */
    int rc;              /* -errno that the application received */
};

int vb_audit_open(struct vb_audit *a, const char *path,
                  const struct hw_logger *log); /* a path of NULL means that only the log is written */
void vb_audit_close(struct vb_audit *a);
void vb_audit_refusal(struct vb_audit *a, const struct vb_refusal *r);

#endif
