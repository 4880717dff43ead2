/* SPDX-License-Identifier: Apache-2.0 */
/* The audit: for each refusal a line of JSON, and a line of text for the operator's log. */
#ifndef HW_VERBS_AUDIT_H
#define HW_VERBS_AUDIT_H

#include "base/base.h"

#include <sys/types.h>

struct vb_audit {
    int fd; /* O_APPEND, shared by all brokers: each line is one write(); -1: none */
    const struct hw_logger *log;
    /* private: beyond a rate, refusals are counted and not written */
    uint64_t window;
    unsigned written, dropped;
};

struct vb_refusal {
    /* program: comm, escaped when printed, because the application chooses it */
    const char *container, *program, *device;
    pid_t pid;
    const char *command; /* "REG_MR length=4096" */
    const char *rule;    /* "max_mr_bytes = 64M"; "schema"; "abi" */
    const char *text;    /* why */
    int rc;              /* -errno that the application received */
};

int vb_audit_open(struct vb_audit *a, const char *path, const struct hw_logger *log); /* path NULL: only the log */
void vb_audit_close(struct vb_audit *a);
void vb_audit_refusal(struct vb_audit *a, const struct vb_refusal *r);

#endif
