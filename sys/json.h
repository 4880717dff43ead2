/* SPDX-License-Identifier: Apache-2.0 */
/* A streaming JSON writer, without a tree and without allocations. The writer adds commas and escapes, and checks the
 * nesting. */
#ifndef HW_JSON_H
#define HW_JSON_H

#include "base/base.h"
#include <stdio.h>

#define HW_JSON_DEPTH 32

struct hw_json {
    FILE *out;
    int depth;
    bool error; /* set by a misplaced call or a failed write; stays set */
    int err;    /* errno of the failed write; 0 if no write failed */
    struct {
        bool object, some;
    } level[HW_JSON_DEPTH];
};

void hw_json_init(struct hw_json *j, FILE *out);
/* key is the member's name inside an object, and NULL inside an array or at the top level. */
void hw_json_object(struct hw_json *j, const char *key);
void hw_json_array(struct hw_json *j, const char *key);
void hw_json_end(struct hw_json *j); /* closes the innermost object or array */
void hw_json_str(struct hw_json *j, const char *key,
                 const char *value); /* a NULL value becomes null, and invalid UTF-8 becomes U+FFFD */
void hw_json_u64(struct hw_json *j, const char *key, uint64_t value);
void hw_json_i64(struct hw_json *j, const char *key, int64_t value);
/* NaN and infinities become null; ignores the locale */
void hw_json_double(struct hw_json *j, const char *key, double value);
void hw_json_bool(struct hw_json *j, const char *key, bool value);
void hw_json_null(struct hw_json *j, const char *key);
/* Ends the document with a newline and flushes it. After success, the next document may follow (JSON lines). Fails with
 * -EINVAL if the calls did not make exactly one complete value, and with -EIO if any write failed. */
int hw_json_finish(struct hw_json *j);

#endif
