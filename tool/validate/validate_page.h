/* SPDX-License-Identifier: Apache-2.0 */
/* The HTML report of `hawser validate`. */
#ifndef HW_TOOL_VALIDATE_PAGE_H
#define HW_TOOL_VALIDATE_PAGE_H

#include "tool/page/page.h"

/* Returns a channel's fault, or NULL if the channel is up, was never lost, and has sent and received bytes. */
const char *validate_channel_fault(const struct hawser_channel_stats *c);

/* A report. A zeroed struct is an empty report. */
struct validate_page {
    struct hawser_channel_stats *ch;
    size_t n;
    uint64_t proved, of;
    char why[HW_ERR_TEXT]; /* reason for the last failure */
};

/* Adds the channels of one NIC's validation to the report, and how many of them were proved. n may be 0. Adds nothing
 * if out of memory. */
void validate_page_add(struct validate_page *v, const char *nic, const struct hawser_channel_stats *ch, size_t n,
                       size_t proved, uint64_t of, const char *why);
/* Writes the report. arg is a struct validate_page. */
void validate_page_write(struct page *p, const void *arg);
void validate_page_free(struct validate_page *v);

#endif
