/* SPDX-License-Identifier: Apache-2.0 */
/* The report of `hawser validate`. */
#ifndef HW_TOOL_VALIDATE_PAGE_H
#define HW_TOOL_VALIDATE_PAGE_H

#include "tool/page/page.h"

/* Returns why a channel does not count, or NULL. */
const char *validate_channel_fault(const struct hawser_channel_stats *c);

/* Zeroed is empty. */
struct validate_page {
    struct hawser_channel_stats *ch;
    size_t n;
    uint64_t proved, of;
    char why[HW_ERR_TEXT]; /* the last fault */
};

/* Records the channels of one NIC's validation and how many were proved; n may be 0. Omits them if there is no
 * memory. */
void validate_page_add(struct validate_page *v, const char *nic, const struct hawser_channel_stats *ch, size_t n,
                       size_t proved, uint64_t of, const char *why);
/* arg: a struct validate_page. */
void validate_page_write(struct page *p, const void *arg);
void validate_page_free(struct validate_page *v);

#endif
