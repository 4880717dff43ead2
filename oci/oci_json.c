/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes OCI's JSON without losing large integers. */
#include "oci/oci.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An integer that may exceed INT64_MAX, and that jansson could therefore not represent, is stored as a string with this
 * prefix. */
#define MARK   "\001int:"
#define MARKED "\"\\u0001int:" /* the prefix in JSON */
#define DIGITS 18              /* numbers with this many digits always fit in 64 bits */

/* Returns the length of the number at text, or 0 if there is none. Sets *large if it is an integer that may be too
 * large. */
static size_t measure_json_number(const char *text, size_t len, bool *large)
{
    size_t n = 0, digits = 0;
    while (n < len && text[n] && strchr("-+.eE0123456789", text[n]))
        digits += text[n] >= '0' && text[n] <= '9', n++;
    *large = digits > DIGITS && digits == n - (*text == '-');
    return n && (*text == '-' || (*text >= '0' && *text <= '9')) ? n : 0;
}

/* Converts large numbers to strings. The caller frees the result. */
static char *mark_large_numbers(const char *text, size_t len, size_t *out_len)
{
    char *out = NULL;
    bool string = false, large;
    FILE *f = open_memstream(&out, out_len);
    if (!f)
        return NULL;
    for (size_t i = 0, n; i < len; i += n) {
        n = string ? 0 : measure_json_number(text + i, len - i, &large);
        bool wrap = n && large;
        if (!n) {
            n = string && text[i] == '\\' && i + 1 < len ? 2 : 1;
            string ^= text[i] == '"';
        }
        if (wrap)
            fputs(MARKED, f);
        fwrite(text + i, 1, n, f);
        if (wrap)
            putc('"', f);
    }
    if (fclose(f) != 0) {
        free(out);
        return NULL;
    }
    return out;
}

json_t *sbx_oci_load(const char *text, size_t len)
{
    json_error_t e;
    size_t n = 0;
    if (memmem(text, len, MARKED, sizeof(MARKED) - 1)) {
        hw_fail(-EINVAL, "it has a string that begins with the control character U+0001");
        return NULL;
    }
    char *marked = mark_large_numbers(text, len, &n);
    json_t *o = marked ? json_loadb(marked, n, JSON_REJECT_DUPLICATES, &e) : NULL;
    if (!marked)
        hw_no_memory("JSON");
    else if (!o)
        hw_fail(-EINVAL, "line %d: %s", e.line, e.text);
    free(marked);
    if (o && !json_is_object(o)) {
        hw_fail(-EINVAL, "not a JSON object");
        json_decref(o);
        o = NULL;
    }
    return o;
}

json_t *sbx_oci_big(const char *digits)
{
    return json_sprintf(MARK "%s", digits);
}

char *sbx_oci_dump(const json_t *o)
{
    char *text = json_dumps(o, JSON_INDENT(4) | JSON_REAL_PRECISION(17));
    char *in = text, *out = text;
    while (text && *in) {
        bool marked = strncmp(in, MARKED, sizeof(MARKED) - 1) == 0 && (in == text || in[-1] != '\\');
        in += marked ? sizeof(MARKED) - 1 : 0;
        do
            *out++ = *in++;
        while (marked && *in && *in != '"');
        in += marked && *in;
    }
    if (text)
        *out = 0;
    return text;
}
