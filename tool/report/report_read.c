/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/report/report_data.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const num_key[REP_NUMS] = {
    [REP_SIZE] = "size",
    [REP_ITERS] = "iters",
    [REP_DEPTH] = "depth",
    [REP_CHANNELS] = "channels",
    [REP_WINDOW] = "window_bytes",
    [REP_SECONDS] = "seconds",
    [REP_GBPS] = "GBps",
    [REP_P50] = "p50_us",
    [REP_P99] = "p99_us",
    [REP_P999] = "p999_us",
    [REP_CPU] = "cpu_s_per_GB",
    [REP_PEER_CPU] = "peer_cpu_s_per_GB",
    [REP_VERIFIED] = "verified_bytes",
    [REP_BAD] = "bad_bytes",
    [REP_RAW_GBPS] = "raw_GBps",
    [REP_RATIO] = "ratio_raw",
    [REP_RAW_SPIN] = "raw_pingpong_spin_us",
    [REP_RAW_CPU] = "raw_cpu_s_per_GB",
    [REP_RAW_PEER_CPU] = "raw_peer_cpu_s_per_GB",
    [REP_LOST] = "lost_channels",
    [REP_RECOVERED] = "recovered_channels",
    [REP_MEAN] = "mean_us",
    [REP_OPS] = "ops_per_s",
    [REP_BLOCKS] = "blocks",
    [REP_GBITS] = "Gbps",
};

/* The current position, for error messages. */
struct at {
    const char *path;
    size_t line;
};

static const char *get_json_type_name(const json_t *v)
{
    static const char *const names[] = {"an object", "an array", "a string", "an integer",
                                        "a number",  "true",     "false",    "null"};
    return names[json_typeof(v)];
}

static int report_no_memory(const struct at *at)
{
    return hw_no_memory("the report: %s:%zu", at->path, at->line);
}

/* Reads a number of at least 0. Stores NAN if the key is missing or null. */
static int get_num(const struct at *at, json_t *o, const char *key, double *out)
{
    json_t *v = json_object_get(o, key);
    *out = NAN;
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_number(v))
        return hw_fail(-EINVAL, "%s:%zu: \"%s\" is %s, but must be a number or null", at->path, at->line, key,
                       get_json_type_name(v));
    double d = json_number_value(v);
    if (!isfinite(d) || d < 0)
        return hw_fail(-EINVAL, "%s:%zu: \"%s\" is %g, but must be at least 0", at->path, at->line, key, d);
    *out = d;
    return 0;
}

static int get_text(const struct at *at, json_t *o, const char *key, char **out)
{
    json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v) || *out) /* only the first value counts */
        return 0;
    if (!json_is_string(v))
        return hw_fail(-EINVAL, "%s:%zu: \"%s\" is %s, but must be a string or null", at->path, at->line, key,
                       get_json_type_name(v));
    *out = strdup(json_string_value(v));
    return *out ? 0 : report_no_memory(at);
}

/* Reads key as an array of at most max elements, and allocates *out for elements of size bytes. *n receives the
 * number of elements, or 0 if the key is missing or null. */
static int get_array(const struct at *at, json_t *o, const char *key, size_t max, size_t size, json_t **array,
                     void *out, size_t *n)
{
    void *mem = NULL;
    *array = json_object_get(o, key);
    *n = 0;
    if (!*array || json_is_null(*array))
        return 0;
    if (!json_is_array(*array))
        return hw_fail(-EINVAL, "%s:%zu: \"%s\" is %s, but must be an array or null", at->path, at->line, key,
                       get_json_type_name(*array));
    size_t have = json_array_size(*array);
    if (have > max)
        return hw_fail(-E2BIG, "%s:%zu: \"%s\" has %zu elements; at most %zu are allowed", at->path, at->line, key,
                       have, max);
    if (have && !(mem = calloc(have, size)))
        return report_no_memory(at);
    memcpy(out, &mem, sizeof(mem)); /* out points to a pointer to the element type */
    *n = have;
    return 0;
}

static int want_object(const struct at *at, const json_t *v, const char *key, size_t i)
{
    if (json_is_object(v))
        return 0;
    return hw_fail(-EINVAL, "%s:%zu: \"%s\"[%zu] is %s, but must be an object", at->path, at->line, key, i,
                   get_json_type_name(v));
}

static int want_num(const struct at *at, double v, const char *key, size_t i, const char *member)
{
    return isnan(v) ? hw_fail(-EINVAL, "%s:%zu: \"%s\"[%zu] has no \"%s\"", at->path, at->line, key, i, member) : 0;
}

/* Reads "nics", which is one string or an array of strings. An integer is also accepted. */
static int read_nics(const struct at *at, json_t *o, struct rep_row *r)
{
    json_t *v = json_object_get(o, "nics"), *e;
    size_t i, len = 1;
    if (!json_is_array(v)) {
        if (!json_is_integer(v))
            return get_text(at, o, "nics", &r->nics);
        char text[32]; /* the number as text */
        snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(v));
        r->nics = strdup(text);
        return r->nics ? 0 : report_no_memory(at);
    }
    json_array_foreach(v, i, e)
    {
        if (!json_is_string(e))
            return hw_fail(-EINVAL, "%s:%zu: \"nics\"[%zu] is %s, but must be a string", at->path, at->line, i,
                           get_json_type_name(e));
        len += json_string_length(e) + 1;
    }
    r->nics = calloc(1, len);
    if (!r->nics)
        return report_no_memory(at);
    char *p = r->nics;
    json_array_foreach(v, i, e) p += sprintf(p, "%s%s", i ? "," : "", json_string_value(e));
    return 0;
}

/* Returns the count of the busier direction, or NAN if neither is known. */
static double pick_larger_count(double a, double b)
{
    return fmax(a, b); /* fmax() of a number and NAN is the number */
}

static int read_per_nic(const struct at *at, json_t *o, struct rep_row *r)
{
    static const char key[] = "per_nic";
    json_t *array, *e;
    size_t i;
    int rc = get_array(at, o, key, REP_MAX_NICS, sizeof(*r->nic), &array, &r->nic, &r->n_nic);
    for (i = 0; !rc && i < r->n_nic; i++) {
        struct rep_nic *n = &r->nic[i];
        double tx = NAN, rx = NAN, ktx = NAN, krx = NAN;
        e = json_array_get(array, i);
        if ((rc = want_object(at, e, key, i)) || (rc = get_text(at, e, "nic", &n->nic)) ||
            (rc = get_text(at, e, "peer_nic", &n->peer_nic)) || (rc = get_num(at, e, "bytes", &n->bytes)) ||
            (rc = get_num(at, e, "tx_bytes", &tx)) || (rc = get_num(at, e, "rx_bytes", &rx)) ||
            (rc = get_num(at, e, "kernel_bytes", &n->kernel_bytes)) || (rc = get_num(at, e, "kernel_tx_bytes", &ktx)) ||
            (rc = get_num(at, e, "kernel_rx_bytes", &krx)) || (rc = get_num(at, e, "GBps", &n->gbps)) ||
            (rc = get_num(at, e, "channels", &n->channels)) || (rc = get_num(at, e, "lost", &n->lost)))
            break;
        if (isnan(n->bytes))
            n->bytes = pick_larger_count(tx, rx);
        if (isnan(n->kernel_bytes))
            n->kernel_bytes = pick_larger_count(ktx, krx);
    }
    return rc;
}

static int by_us(const void *a, const void *b)
{
    double x = ((const struct rep_bin *)a)->us, y = ((const struct rep_bin *)b)->us;
    return (x > y) - (x < y);
}

static int by_sample(const void *a, const void *b)
{
    double x = ((const struct rep_sample *)a)->t, y = ((const struct rep_sample *)b)->t;
    return (x > y) - (x < y);
}

static int by_fault(const void *a, const void *b)
{
    double x = ((const struct rep_fault *)a)->t, y = ((const struct rep_fault *)b)->t;
    return (x > y) - (x < y);
}

static int read_hist(const struct at *at, json_t *o, struct rep_row *r)
{
    static const char key[] = "hist_us";
    json_t *array;
    int rc = get_array(at, o, key, REP_MAX_POINTS, sizeof(*r->bin), &array, &r->bin, &r->n_bin);
    for (size_t i = 0; !rc && i < r->n_bin; i++) {
        json_t *e = json_array_get(array, i);
        json_t *us = json_array_get(e, 0), *count = json_array_get(e, 1); /* both are NULL if e is not an array */
        if (!json_is_number(us) || !json_is_number(count))
            return hw_fail(-EINVAL, "%s:%zu: \"%s\"[%zu] is not [microseconds, count]", at->path, at->line, key, i);
        r->bin[i] = (struct rep_bin){.us = json_number_value(us), .count = json_number_value(count)};
        if (r->bin[i].us < 0 || r->bin[i].count < 0)
            return hw_fail(-EINVAL, "%s:%zu: \"%s\"[%zu] is negative", at->path, at->line, key, i);
    }
    if (!rc && r->n_bin)
        qsort(r->bin, r->n_bin, sizeof(*r->bin), by_us);
    return rc;
}

static int name_index(const struct at *at, struct rep_row *r, const char *name, uint32_t *out)
{
    size_t i = 0;
    while (i < r->n_name && strcmp(r->name[i], name) != 0)
        i++;
    if (i == REP_MAX_NICS)
        return hw_fail(-E2BIG, "%s:%zu: \"timeline\" has more than %d NICs", at->path, at->line, REP_MAX_NICS);
    if (i == r->n_name) {
        r->name[i] = strdup(name);
        if (!r->name[i])
            return report_no_memory(at);
        r->n_name++;
    }
    *out = (uint32_t)i;
    return 0;
}

static int read_timeline(const struct at *at, json_t *o, struct rep_row *r)
{
    static const char key[] = "timeline";
    json_t *array;
    int rc = get_array(at, o, key, REP_MAX_POINTS, sizeof(*r->sample), &array, &r->sample, &r->n_sample);
    for (size_t i = 0; !rc && i < r->n_sample; i++) {
        json_t *e = json_array_get(array, i);
        struct rep_sample *s = &r->sample[i];
        char *nic = NULL;
        if (!(rc = want_object(at, e, key, i)) && !(rc = get_num(at, e, "t_s", &s->t)) &&
            !(rc = want_num(at, s->t, key, i, "t_s")) && !(rc = get_num(at, e, "GBps", &s->gbps)) &&
            !(rc = want_num(at, s->gbps, key, i, "GBps")) && !(rc = get_text(at, e, "nic", &nic)))
            rc = name_index(at, r, nic ? nic : "all", &s->nic);
        free(nic);
    }
    if (!rc && r->n_sample)
        qsort(r->sample, r->n_sample, sizeof(*r->sample), by_sample);
    return rc;
}

static int read_faults(const struct at *at, json_t *o, struct rep_row *r)
{
    static const char key[] = "faults";
    json_t *array;
    int rc = get_array(at, o, key, REP_MAX_FAULTS, sizeof(*r->fault), &array, &r->fault, &r->n_fault);
    for (size_t i = 0; !rc && i < r->n_fault; i++) {
        json_t *e = json_array_get(array, i);
        struct rep_fault *f = &r->fault[i];
        if (!(rc = want_object(at, e, key, i)) && !(rc = get_num(at, e, "t_s", &f->t)) &&
            !(rc = want_num(at, f->t, key, i, "t_s")))
            rc = get_text(at, e, "text", &f->text);
    }
    if (!rc && r->n_fault)
        qsort(r->fault, r->n_fault, sizeof(*r->fault), by_fault);
    return rc;
}

/* Reads the GPUs of bench --gpus. Each pair of GPUs gets its own memory name, so that each pair forms a series. The sum
 * of all GPUs gets another name. */
static int read_gpu(const struct at *at, json_t *o, struct rep_row *r)
{
    json_t *gpu = json_object_get(o, "gpu"), *peer = json_object_get(o, "peer_gpu");
    char *mem = NULL;
    r->sum = json_is_true(json_object_get(o, "sum"));
    if (!gpu || json_is_null(gpu))
        return 0;
    r->sum = json_is_string(gpu) && strcmp(json_string_value(gpu), "all") == 0;
    if (!r->sum && (!json_is_integer(gpu) || !json_is_integer(peer)))
        return hw_fail(-EINVAL, "%s:%zu: \"gpu\" must be \"all\", or \"gpu\" and \"peer_gpu\" must be integers",
                       at->path, at->line);
    int n = r->sum ? asprintf(&mem, "all GPUs")
                   : asprintf(&mem, "GPU %lld -> %lld", (long long)json_integer_value(gpu),
                              (long long)json_integer_value(peer));
    if (n < 0)
        return report_no_memory(at);
    free(r->mem);
    r->mem = mem;
    return 0;
}

static int read_row(const struct at *at, json_t *o, struct rep *all, struct rep_row *r)
{
    int rc = 0;
    r->line = at->line;
    for (int i = 0; i < REP_NUMS; i++)
        r->num[i] = NAN;
    for (int i = 0; !rc && i < REP_NUMS; i++)
        rc = get_num(at, o, num_key[i], &r->num[i]);
    if (isnan(r->num[REP_GBITS]))
        r->num[REP_GBITS] = 8 * r->num[REP_GBPS];
    if (rc || (rc = get_text(at, o, "op", &r->op)) || (rc = get_text(at, o, "mem", &r->mem)) ||
        (rc = read_gpu(at, o, r)) || (rc = read_nics(at, o, r)) || (rc = read_per_nic(at, o, r)) ||
        (rc = read_hist(at, o, r)) || (rc = read_timeline(at, o, r)) || (rc = read_faults(at, o, r)) ||
        (rc = get_text(at, o, "title", &all->title)) || (rc = get_text(at, o, "node", &all->node)) ||
        (rc = get_text(at, o, "peer", &all->peer)) || (rc = get_text(at, o, "date", &all->date)))
        return rc;
    if (!r->op || isnan(r->num[REP_SIZE]))
        return hw_fail(-EINVAL, "%s:%zu: there is no \"%s\", so this is not a measurement of hawser bench --json",
                       at->path, at->line, r->op ? "size" : "op");
    return 0;
}

static void row_free(struct rep_row *r)
{
    free(r->op);
    free(r->mem);
    free(r->nics);
    for (size_t i = 0; r->nic && i < r->n_nic; i++) {
        free(r->nic[i].nic);
        free(r->nic[i].peer_nic);
    }
    for (size_t i = 0; r->fault && i < r->n_fault; i++)
        free(r->fault[i].text);
    for (size_t i = 0; i < r->n_name; i++)
        free(r->name[i]);
    free(r->nic);
    free(r->bin);
    free(r->sample);
    free(r->fault);
}

void rep_free(struct rep *r)
{
    for (size_t i = 0; i < r->n_row; i++)
        row_free(&r->row[i]);
    free(r->row);
    free(r->title);
    free(r->node);
    free(r->peer);
    free(r->date);
    *r = (struct rep){0};
}

static int read_line(const struct at *at, const char *text, size_t len, struct rep *r)
{
    json_error_t err;
    if (len > REP_MAX_LINE)
        return hw_fail(-E2BIG, "%s:%zu: the line has %zu bytes; at most %u are allowed", at->path, at->line, len,
                       REP_MAX_LINE);
    json_auto_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, &err);
    if (!o)
        return hw_fail(-EINVAL, "%s:%zu: invalid JSON at column %d: %s", at->path, at->line, err.column, err.text);
    if (!json_is_object(o))
        return hw_fail(-EINVAL, "%s:%zu: the line is %s, but must be an object", at->path, at->line,
                       get_json_type_name(o));
    if (r->n_row == REP_MAX_ROWS)
        return hw_fail(-E2BIG, "%s:%zu: too many measurements; at most %d are allowed", at->path, at->line,
                       REP_MAX_ROWS);
    if ((r->n_row & (r->n_row - 1)) == 0) { /* the array is full at each power of two */
        struct rep_row *more = realloc(r->row, HW_MAX(2 * r->n_row, (size_t)1) * sizeof(*more));
        if (!more)
            return report_no_memory(at);
        r->row = more;
    }
    r->row[r->n_row] = (struct rep_row){0};
    return read_row(at, o, r, &r->row[r->n_row++]);
}

int rep_read(FILE *in, const char *path, struct rep *r)
{
    struct at at = {.path = path};
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    int rc = 0;
    *r = (struct rep){0};
    while (!rc && (errno = 0, len = getline(&line, &cap, in)) >= 0) {
        at.line++;
        if (strspn(line, " \t\r\n") == (size_t)len) /* skip empty lines */
            continue;
        rc = read_line(&at, line, (size_t)len, r);
    }
    if (!rc && !feof(in))
        rc = hw_fail(errno ? -errno : -EIO, "reading %s: %s", path, strerror(errno ? errno : EIO));
    if (!rc && !r->n_row)
        rc = hw_fail(-ENODATA, "%s has no measurement; `hawser bench --json FILE` writes one per line", path);
    free(line);
    if (rc)
        rep_free(r);
    return rc;
}
