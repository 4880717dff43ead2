/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of rtnetlink(7) messages. */
#ifndef HW_RTATTR_H
#define HW_RTATTR_H

#include <linux/rtnetlink.h>
#include <stddef.h>

/* Returns the first attribute of this type in the len bytes at a, or NULL. */
static inline const struct rtattr *hw_rtattr_find(const struct rtattr *a, size_t len, unsigned type)
{
    for (; RTA_OK(a, len); a = RTA_NEXT(a, len))
        if ((a->rta_type & NLA_TYPE_MASK) == type)
            return a;
    return NULL;
}

#endif
