/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/trace/trace_read.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KINDS = 20000, MOST_LINE = 4096 };

const char *const trace_levels[6] = {"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"};

const struct trace_kind *trace_kind_of(const struct trace *t, const char *key)
{
    for (size_t i = 0; i < t->n_kind; i++)
        if (strcmp(t->kind[i].key, key) == 0)
            return &t->kind[i];
    return NULL;
}

const struct trace_call *trace_call_of(const struct trace *t, const char *name)
{
    for (size_t i = 0; i < t->n_call; i++)
        if (strcmp(t->call[i].name, name) == 0)
            return &t->call[i];
    return NULL;
}

static int count_kind(struct trace *t, const char *key)
{
    struct trace_kind *k = (struct trace_kind *)(uintptr_t)trace_kind_of(t, key);
    if (k) {
        k->n++;
        return 0;
    }
    if (t->n_kind == MOST_KINDS)
        return hw_fail(-E2BIG, "too many kinds of lines: at most %d", MOST_KINDS);
    if (t->n_kind == t->room) {
        const size_t room = HW_MAX(2 * t->room, (size_t)64);
        struct trace_kind *more = realloc(t->kind, room * sizeof(*more));
        if (!more)
            return hw_no_memory("a trace");
        t->kind = more;
        t->room = room;
    }
    k = &t->kind[t->n_kind++];
    *k = (struct trace_kind){.line = t->n_lines, .n = 1};
    snprintf(k->key, sizeof(k->key), "%s", key);
    return 0;
}

/* Returns true for words that carry no information for a comparison, or that differ between runs. */
static bool passes_over(const char *word)
{
    static const char *const names[] = {"us=", "polls=", "handle=", "ptr=", "guid="};
    for (size_t i = 0; i < HW_ARRAY_LEN(names); i++)
        if (strncmp(word, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* Returns true for words such as "comm=S12", which stands for a sending connection. The number is not compared. */
static bool names_thing(const char *word)
{
    const char *v = strchr(word, '=');
    return v && strchr("LSRM", v[1]) && v[1] && isdigit((unsigned char)v[2]);
}

/* Returns true for calls that move data, whose number and size vary. */
static bool moves_data(const char *call)
{
    static const char *const names[] = {"isend", "irecv", "test", "iflush", "irecvConsumed"};
    for (size_t i = 0; i < HW_ARRAY_LEN(names); i++)
        if (strcmp(call, names[i]) == 0)
            return true;
    return false;
}

static void add_word(char *key, const char *word, size_t len)
{
    const size_t at = strlen(key);
    if (at + len + 2 < TRACE_KEY)
        snprintf(key + at, TRACE_KEY - at, "%s%.*s", at ? " " : "", (int)len, word);
}

static struct trace_call *find_or_add_call(struct trace *t, const char *name)
{
    struct trace_call *c = (struct trace_call *)(uintptr_t)trace_call_of(t, name);
    if (!c && t->n_call < HW_ARRAY_LEN(t->call)) {
        c = &t->call[t->n_call++];
        *c = (struct trace_call){0};
        snprintf(c->name, sizeof(c->name), "%.*s", TRACE_CALL - 1, name);
    }
    return c;
}

/* Parses a call: "CALL [NAME=VALUE]... = RESULT [NAME=VALUE]...". */
static int parse_trace_call(struct trace *t, char *text)
{
    char key[TRACE_KEY] = "";
    char *rest, *call = strtok_r(text, " ", &rest);
    struct trace_call *c = call ? find_or_add_call(t, call) : NULL;
    if (!c) {
        t->n_odd++;
        return 0;
    }
    const bool data = moves_data(call);
    bool result = false, over = false;
    add_word(key, call, strlen(call));
    c->n++;
    for (char *word; (word = strtok_r(NULL, " ", &rest));) {
        if (strcmp(word, "=") == 0) {
            over = true;
            add_word(key, word, 1);
            continue;
        }
        if (over && !result) {
            result = true;
            c->failed += strcmp(word, "0") != 0;
            add_word(key, word, strlen(word));
            continue;
        }
        if (strncmp(word, "us=", 3) == 0) {
            const double us = strtod(word + 3, NULL);
            c->us += us;
            c->most = HW_MAX(c->most, us);
        }
        if (strncmp(word, "polls=", 6) == 0)
            c->polls += strtoull(word + 6, NULL, 10);
        if (passes_over(word) || (data && strncmp(word, "done=", 5) != 0))
            continue;
        add_word(key, word, names_thing(word) ? (size_t)(strchr(word, '=') - word) + 2 : strlen(word));
    }
    return count_kind(t, key);
}

/* Parses a line of the log: "LEVEL FILE:LINE TEXT". Replaces numbers with '#', because they differ between runs. */
static int take_log(struct trace *t, const char *text)
{
    char key[TRACE_KEY];
    size_t at = (size_t)snprintf(key, sizeof(key), "log ");
    for (size_t i = 0; i < HW_ARRAY_LEN(trace_levels); i++)
        if (strncmp(text, trace_levels[i], strlen(trace_levels[i])) == 0 && text[strlen(trace_levels[i])] == ' ')
            t->log[i]++;
    for (bool digits = false; *text && at + 1 < sizeof(key); text++) {
        const bool digit = isxdigit((unsigned char)*text) && (digits || isdigit((unsigned char)*text));
        if (!digit || !digits)
            key[at++] = (char)(digit ? '#' : *text);
        digits = digit;
    }
    key[at] = 0;
    return count_kind(t, key);
}

static int parse_trace_line(struct trace *t, char *line)
{
    char *end;
    const double s = strtod(line, &end);
    const char *id;
    if (end == line || s < 0 || *end != ' ')
        goto odd;
    id = end + 1;
    end = (char *)(uintptr_t)id + strspn(id, "0123456789.");
    if (end == id || *end != ' ')
        goto odd;
    end++;
    return strncmp(end, "log ", 4) == 0 ? take_log(t, end + 4) : parse_trace_call(t, end);
odd:
    t->n_odd++;
    return 0;
}

int trace_read(FILE *in, const char *path, struct trace *t)
{
    char line[MOST_LINE];
    int rc = 0;
    *t = (struct trace){0};
    while (rc == 0 && fgets(line, sizeof(line), in)) {
        t->n_lines++;
        line[strcspn(line, "\n")] = 0;
        rc = parse_trace_line(t, line);
    }
    if (rc == 0 && ferror(in))
        rc = hw_fail(-EIO, "reading %s failed", path);
    if (rc == 0 && t->n_kind == 0)
        rc = hw_fail(-ENODATA, "%s contains no plugin call: check that the transport was netplugin:PLUGIN", path);
    if (rc < 0) {
        HW_KEEP_ERROR();
        trace_free(t);
        return rc;
    }
    return 0;
}

void trace_free(struct trace *t)
{
    free(t->kind);
    *t = (struct trace){0};
}
