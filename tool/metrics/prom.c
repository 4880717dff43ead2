/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/metrics/prom.h"

#define LINE 512 /* maximum bytes of a line that is not a comment */

/* The unparsed rest of a line. */
struct cursor {
    const char *at, *end;
};

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ':';
}

/* Parses a name and truncates it to cap - 1 bytes. Returns false if there is no name. */
static bool take_name(struct cursor *c, char *buf, size_t cap)
{
    const char *start = c->at;
    while (c->at < c->end && is_name_byte(*c->at))
        c->at++;
    size_t n = HW_MIN((size_t)(c->at - start), cap - 1);
    memcpy(buf, start, n);
    buf[n] = 0;
    return n > 0;
}

static bool take_byte(struct cursor *c, char byte)
{
    if (c->at == c->end || *c->at != byte)
        return false;
    c->at++;
    return true;
}

/* Parses a string in quotes; each byte that is not printable ASCII becomes '?'. Rejects backslashes, because contexts
 * do not write escapes. */
static bool take_string(struct cursor *c, char *buf, size_t cap)
{
    size_t n = 0;
    if (!take_byte(c, '"'))
        return false;
    for (; c->at < c->end && *c->at != '"'; c->at++) {
        if (*c->at == '\\')
            return false;
        if (n + 1 < cap)
            memcpy(&buf[n++], *c->at >= ' ' && *c->at <= '~' ? c->at : "?", 1);
    }
    buf[n] = 0;
    return take_byte(c, '"');
}

/* Parses a number without sign or exponent that extends to the end of the line. */
static bool take_number(struct cursor *c, struct prom_sample *s)
{
    size_t n = 0, digits = 0, dots = 0;
    double scale = 1;
    s->value = 0;
    for (; c->at < c->end && n + 1 < sizeof s->text; c->at++) {
        if (*c->at >= '0' && *c->at <= '9') {
            digits++;
            if (dots)
                s->value += (*c->at - '0') * (scale /= 10);
            else
                s->value = s->value * 10 + (*c->at - '0');
        } else if (*c->at == '.' && digits && !dots) {
            dots++;
            digits = 0;
        } else {
            return false;
        }
        s->text[n++] = *c->at;
    }
    s->text[n] = 0;
    return digits > 0 && c->at == c->end;
}

void prom_label_name(enum hw_metric m, unsigned k, char *buf, size_t cap)
{
    const char *at = hw_metrics[m].labels;
    for (; k && at; k--) {
        at = strchr(at, ',');
        at = at ? at + 1 : NULL;
    }
    size_t n = at ? HW_MIN(strcspn(at, ","), cap - 1) : 0;
    memcpy(buf, at ? at : "", n);
    buf[n] = 0;
}

/* Returns the index of the label in the metric family, or PROM_LABELS if the family lacks the label. */
static unsigned find_label(enum hw_metric m, const char *name)
{
    char have[PROM_LABEL];
    for (unsigned k = 0; k < PROM_LABELS; k++) {
        prom_label_name(m, k, have, sizeof have);
        if (strcmp(have, name) == 0)
            return k;
    }
    return PROM_LABELS;
}

static enum hw_metric find_metric(const char *name)
{
    int m = 0;
    while (m < HW_METRICS && strcmp(hw_metrics[m].name, name) != 0)
        m++;
    return (enum hw_metric)m;
}

/* Parses {name="value",..}, which may be missing, and skips labels that the metric family lacks. */
static bool take_labels(struct cursor *c, struct prom_sample *s)
{
    char name[PROM_LABEL], value[PROM_LABEL];
    if (!take_byte(c, '{'))
        return true;
    do {
        if (!take_name(c, name, sizeof name) || !take_byte(c, '=') || !take_string(c, value, sizeof value))
            return false;
        unsigned k = s->metric < HW_METRICS ? find_label(s->metric, name) : PROM_LABELS;
        if (k < PROM_LABELS)
            memcpy(s->label[k], value, sizeof value);
    } while (take_byte(c, ','));
    return take_byte(c, '}');
}

static int keep_sample(struct prom *p, const struct prom_sample *s)
{
    if (s->metric == HW_METRICS) {
        p->unknown++;
        return 0;
    }
    if (p->n == PROM_SAMPLES)
        return hw_fail(-E2BIG, "too many samples: at most %d", PROM_SAMPLES);
    if (p->n == p->room) {
        size_t room = p->room ? 2 * p->room : 64;
        struct prom_sample *more = realloc(p->sample, room * sizeof *more);
        if (!more)
            return hw_no_memory("%zu samples", room);
        p->sample = more;
        p->room = room;
    }
    p->sample[p->n++] = *s;
    return 0;
}

static int parse_line(struct prom *p, const char *line, size_t len, size_t number)
{
    struct cursor c = {line, line + len};
    struct prom_sample s = {0};
    char name[PROM_LABEL];
    if (len == 0 || *line == '#')
        return 0;
    bool good = len <= LINE && take_name(&c, name, sizeof name);
    if (good) {
        s.metric = find_metric(name);
        good = take_labels(&c, &s) && take_byte(&c, ' ') && take_number(&c, &s);
    }
    return good ? keep_sample(p, &s) : hw_fail(-EPROTO, "line %zu is not a sample", number);
}

int prom_parse(const char *text, size_t len, struct prom *p)
{
    const size_t end = strlen(HW_METRICS_END);
    const char *at = text;
    int rc = 0;
    *p = (struct prom){0};
    if (len > PROM_TEXT)
        return hw_fail(-E2BIG, "the text exceeds %lu MiB", PROM_TEXT >> 20);
    if (len < end || memcmp(text + len - end, HW_METRICS_END, end) != 0)
        return hw_fail(-EPROTO, "the text is truncated");
    for (size_t number = 1; rc == 0 && at < text + len; number++) {
        /* always found, because the text ends with a newline */
        const char *newline = memchr(at, '\n', (size_t)(text + len - at));
        rc = parse_line(p, at, (size_t)(newline - at), number);
        at = newline + 1;
    }
    return rc;
}

void prom_free(struct prom *p)
{
    free(p->sample);
    *p = (struct prom){0};
}
