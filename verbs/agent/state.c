/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the message that a runtime sends with the listener of a container ("The Container Process State" in
 * config-linux.md of the OCI runtime specification). */
#include "verbs/agent/agent.h"

#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "hawser.verbs."
#define NAME   "seccompFd" /* name of the listener in the specification */

bool vb_state_whole(struct vb_state_scan *s, const char *text, size_t len)
{
    for (size_t i = 0; i < len && !s->whole; i++) {
        char c = text[i];
        if (s->escaped || (s->string && c == '\\')) {
            s->escaped = !s->escaped;
        } else if (c == '"') {
            s->string = !s->string;
        } else if (!s->string) {
            s->depth += (c == '{' || c == '[') - (c == '}' || c == ']');
            /* Text that begins with neither white space nor an opening brace or bracket cannot become an object. */
            s->whole = s->depth <= 0 && !strchr(" \t\r\n", c);
        } else {
            continue;
        }
        s->whole |= s->depth == 0 && s->string; /* the text begins with a string instead of an object */
    }
    return s->whole;
}

/* Returns true if the container's id can be used as a file name. */
static bool is_valid_container_id(const char *id)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:@+-";
    return *id && *id != '.' && *id != '-' && id[strspn(id, good)] == 0;
}

static int copy_state_text(char *out, size_t cap, const char *text, const char *what)
{
    if (!text || strlen(text) >= cap)
        return hw_fail(-EINVAL, "%s %s", what, text ? "is too long" : "is missing or not a string");
    memcpy(out, text, strlen(text) + 1);
    return 0;
}

static int parse_state_annotations(struct vb_container *c, const json_t *all)
{
    const char *key;
    json_t *v;
    if (all && !json_is_object(all) && !json_is_null(all))
        return hw_fail(-EINVAL, "the annotations are not an object");
    json_object_foreach((json_t *)all, key, v) /* NOLINT: only reads */
    {
        /* The annotation "hawser.verbs.spec" is only for `hawser verbs spec`. */
        if (strncmp(key, PREFIX, sizeof(PREFIX) - 1) != 0 || strcmp(key, PREFIX "spec") == 0)
            continue;
        const char *value = json_string_value(v);
        if (!value)
            return hw_fail(-EINVAL, "annotation %.64s is not a string", key);
        if (strcmp(key, PREFIX "policy") == 0) {
            int rc = copy_state_text(c->section, sizeof(c->section), value, "annotation " PREFIX "policy");
            if (rc < 0)
                return rc;
            continue;
        }
        struct vb_annotation *more = realloc(c->annotations, (c->n_annotations + 1) * sizeof(*more));
        if (!more)
            return hw_no_memory("annotations");
        c->annotations = more;
        more += c->n_annotations++;
        *more = (struct vb_annotation){strdup(key), strdup(value)};
        if (!more->key || !more->value)
            return hw_no_memory("annotations");
    }
    return 0;
}

static int find_listener_fd(const json_t *names, unsigned fds, unsigned *which)
{
    unsigned found = 0;
    if (!json_is_array(names))
        return hw_fail(-EINVAL, "fds is missing or not an array");
    if (json_array_size(names) != fds)
        return hw_fail(-EINVAL, "the number of descriptors is %u, but the message lists %zu", fds,
                       json_array_size(names));
    for (unsigned i = 0; i < fds; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (name && strcmp(name, NAME) == 0) {
            *which = i;
            found++;
        }
    }
    return found == 1 ? 0
                      : hw_fail(-EINVAL, "%s the descriptors is called " NAME, found ? "more than one of" : "none of");
}

static int parse_container_state(struct vb_container *c, const json_t *o, unsigned fds, unsigned *which)
{
    const json_t *state = json_object_get(o, "state"), *pid = json_object_get(o, "pid");
    int rc = copy_state_text(c->id, sizeof(c->id), json_string_value(json_object_get(state, "id")), "state.id");
    if (rc < 0)
        return rc;
    if (!is_valid_container_id(c->id))
        return hw_fail(-EINVAL, "state.id cannot be used as a file name");
    if (pid && !json_is_integer(pid))
        return hw_fail(-EINVAL, "pid is not a number");
    if (json_integer_value(pid) < 0 || json_integer_value(pid) > INT_MAX)
        return hw_fail(-EINVAL, "pid is not a valid process number");
    c->pid = (pid_t)json_integer_value(pid);
    rc = parse_state_annotations(c, json_object_get(state, "annotations"));
    return rc < 0 ? rc : find_listener_fd(json_object_get(o, "fds"), fds, which);
}

int vb_state_parse(const char *text, size_t len, unsigned fds, struct vb_container *c, unsigned *which, bool *whole)
{
    struct vb_state_scan scan = {0};
    json_error_t e;
    *c = (struct vb_container){.listener = -1, .join = -1};
    *whole = vb_state_whole(&scan, text, HW_MIN(len, (size_t)VB_STATE_MAX));
    if (!*whole && len >= VB_STATE_MAX)
        return hw_fail(-E2BIG, "the message is larger than %u bytes", VB_STATE_MAX);
    if (!*whole)
        return 0;
    json_auto_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
    int rc = json_is_object(o) ? parse_container_state(c, o, fds, which)
             : o               ? hw_fail(-EINVAL, "the message is not a JSON object")
                               : hw_fail(-EINVAL, "the message is not valid JSON: line %d: %s", e.line, e.text);
    if (rc < 0)
        vb_container_free(c);
    return rc;
}

void vb_container_free(struct vb_container *c)
{
    for (unsigned i = 0; i < c->n_annotations; i++) {
        free((char *)c->annotations[i].key);   /* NOLINT: allocated in parse_state_annotations() */
        free((char *)c->annotations[i].value); /* NOLINT */
    }
    free(c->annotations);
    hw_close(&c->listener);
    hw_close(&c->join);
    *c = (struct vb_container){.listener = -1, .join = -1};
}
