/* SPDX-License-Identifier: Apache-2.0 */
#include "net/rails.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BETWEEN_WORDS ", \t\r"
#define END_OF_RAIL   ";\n#"

struct word {
    const char *at;
    size_t len;
};

/* Reads the next word of the rail at *p and moves *p past the word. Returns false at the end of the rail. */
static bool next_word(const char **p, struct word *w)
{
    *p += strspn(*p, BETWEEN_WORDS);
    *w = (struct word){.at = *p, .len = strcspn(*p, BETWEEN_WORDS END_OF_RAIL)};
    *p += w->len;
    return w->len > 0;
}

/* Moves *p past the end of the rail and past a comment. Returns false at the end of the map. */
static bool next_rail(const char **p)
{
    if (**p == '#')
        *p += strcspn(*p, "\n");
    if (**p)
        ++*p;
    return **p != 0;
}

/* Parses a subnet or address such as "10.0.1.0/24" or "fd00::1". Returns false if the word is neither. */
static bool parse_subnet(const struct word *w, struct hw_nic *out)
{
    char text[HAWSER_ADDR_TEXT + 8], *slash, *end;
    memset(out, 0, sizeof(*out));
    if (w->len >= sizeof(text))
        return false;
    memcpy(text, w->at, w->len);
    text[w->len] = 0;
    slash = strchr(text, '/');
    if (slash)
        *slash++ = 0;
    if (inet_pton(AF_INET, text, &out->addr.in.sin_addr) == 1)
        out->addr.sa.sa_family = AF_INET;
    else if (inet_pton(AF_INET6, text, &out->addr.in6.sin6_addr) == 1)
        out->addr.sa.sa_family = AF_INET6;
    else
        return false;
    unsigned most = out->addr.sa.sa_family == AF_INET ? 32 : 128;
    unsigned long bits = slash ? strtoul(slash, &end, 10) : most;
    out->prefix = (unsigned)bits;
    return bits <= most && (!slash || (*slash >= '0' && *slash <= '9' && !*end));
}

static bool is_on(const struct word *w, const struct hw_path_end *e)
{
    struct hw_nic net;
    if (strlen(e->name) == w->len && memcmp(e->name, w->at, w->len) == 0)
        return true;
    return parse_subnet(w, &net) && hw_nic_reaches(&net, &e->addr);
}

bool hw_rails_join(const char *rails, const struct hw_path_end *mine, const struct hw_path_end *theirs)
{
    const char *p = rails;
    do {
        struct word w;
        bool a = false, b = false;
        while (next_word(&p, &w)) {
            a |= is_on(&w, mine);
            b |= is_on(&w, theirs);
        }
        if (a && b)
            return true;
    } while (next_rail(&p));
    return false;
}

int hw_rails_number(const char *rails, const struct hw_path_end *end)
{
    const char *p = rails;
    int number = 0;
    do {
        struct word w;
        bool empty = true;
        for (; next_word(&p, &w); empty = false)
            if (is_on(&w, end))
                return number;
        number += !empty;
    } while (next_rail(&p));
    return -1;
}

int hw_rails_check(const char *rails)
{
    const char *p = rails;
    if (strlen(rails) >= HW_RAILS_MAX)
        return hw_fail(-EINVAL, "the map of rails has %zu bytes; at most %d are allowed", strlen(rails),
                       HW_RAILS_MAX - 1);
    do {
        struct word w;
        struct hw_nic net;
        while (next_word(&p, &w)) {
            bool address = memchr(w.at, '/', w.len) || memchr(w.at, ':', w.len);
            if ((address && !parse_subnet(&w, &net)) || (!address && w.len >= HAWSER_NIC_NAME))
                return hw_fail(
                    -EINVAL,
                    "map of rails: \"%.*s\" is neither a NIC's name nor an address or a subnet such as 10.0.1.0/24",
                    (int)HW_MIN(w.len, (size_t)60), w.at);
        }
    } while (next_rail(&p));
    return 0;
}

int hw_rails_read(const char *knob, char **out)
{
    char *text = NULL;
    *out = NULL;
    if (*knob != '@') {
        *out = strdup(knob);
        return *out ? 0 : hw_no_memory("a map of rails");
    }
    int fd = open(knob + 1, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return hw_fail(-errno, "reading the map of rails %s: %s", knob + 1, strerror(errno));
    text = malloc(HW_RAILS_MAX + 1);
    size_t n = 0;
    ssize_t got = 1;
    while (text && n < HW_RAILS_MAX && got > 0) {
        got = read(fd, text + n, HW_RAILS_MAX - n);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got > 0)
            n += (size_t)got;
    }
    int rc = 0;
    if (!text)
        rc = hw_no_memory("a map of rails");
    else if (got < 0)
        rc = hw_fail(-errno, "reading the map of rails %s: %s", knob + 1, strerror(errno));
    else if (n == HW_RAILS_MAX || memchr(text, 0, n))
        rc =
            hw_fail(-EINVAL, "the map of rails %s is not a text file, or has %d bytes or more", knob + 1, HW_RAILS_MAX);
    hw_close(&fd);
    if (rc) {
        free(text);
        return rc;
    }
    text[n] = 0;
    *out = text;
    return 0;
}
