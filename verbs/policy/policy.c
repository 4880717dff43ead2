/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the policy file, which consists of sections with keys. */
#include "verbs/policy/policy_int.h"

#include <ctype.h>
#include <fcntl.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX     (256u << 10)
#define SECTIONS_MAX 256

static int section_words(struct vb_section *s, const char *name)
{
    char text[VB_SECTION_BYTES + 1], *word[5], *save = NULL;
    int n = 0;
    snprintf(text, sizeof(text), "%s", name);
    for (char *w = strtok_r(text, " \t", &save); w && n < 5; w = strtok_r(NULL, " \t", &save))
        word[n++] = w;
    bool container = n >= 2 && strcmp(word[0], "container") == 0;
    int at = container ? 2 : 0;
    bool device = n == at + 2 && strcmp(word[at], "device") == 0;
    if (container)
        snprintf(s->container, sizeof(s->container), "%s", word[1]);
    if (device)
        snprintf(s->device, sizeof(s->device), "%s", word[at + 1]);
    if ((n == 1 && strcmp(word[0], "default") == 0) || device || (container && n == 2))
        return 0;
    return hw_fail(
        -EINVAL, "[%s]: a section is [default], [device PATTERN], [container NAME] or [container NAME device PATTERN]",
        name);
}

static int add_section(struct vb_policy *p, const char *name, size_t len)
{
    struct vb_section *s = &p->section[p->n];
    if (len > VB_SECTION_BYTES)
        return hw_fail(-EINVAL, "[%.*s...]: the name of a section may have at most %d bytes", VB_SECTION_BYTES, name,
                       VB_SECTION_BYTES);
    if (p->n == SECTIONS_MAX)
        return hw_fail(-E2BIG, "the policy has more than %d sections", SECTIONS_MAX);
    memcpy(s->name, name, len);
    int rc = section_words(s, s->name);
    for (unsigned i = 0; rc == 0 && i < p->n; i++)
        if (strcmp(p->section[i].container, s->container) == 0 && strcmp(p->section[i].device, s->device) == 0)
            return hw_fail(-EINVAL, "[%s]: duplicate section for the same container and device", s->name);
    p->n++;
    return rc;
}

/* Adds a section if the line begins one. Rejects lines that inih would ignore or misread: lines and section names that
 * are too long, and text around a section's brackets. */
static int scan_line(struct vb_policy *p, const char *line, size_t n)
{
    if (n > VB_LINE_BYTES)
        return hw_fail(-EINVAL, "the line is longer than %d bytes", VB_LINE_BYTES);
    size_t at = 0;
    while (n > 0 && isspace((unsigned char)line[n - 1]))
        n--;
    while (at < n && isspace((unsigned char)line[at]))
        at++;
    if (at == n || line[at] != '[')
        return 0;
    const char *end = memchr(line, ']', n);
    if (at > 0 || !end || end != line + n - 1 || memchr(line, ';', n))
        return hw_fail(-EINVAL, "the line of a section must contain [NAME] and nothing else");
    return add_section(p, line + 1, n - 2);
}

struct reader {
    struct vb_policy *p;
    int rc;
};

static int set_section_key(struct vb_policy *p, const char *section, const char *name, const char *value)
{
    struct vb_section *s = NULL;
    const struct vb_key *k = vb_key_of(name);
    for (unsigned i = 0; i < p->n; i++)
        if (strcmp(p->section[i].name, section) == 0)
            s = &p->section[i];
    if (!s)
        return hw_fail(-EINVAL, "'%.60s' precedes the first section", name);
    if (!k)
        return hw_fail(-EINVAL, "unknown key '%.60s'", name);
    if (k->kind == VB_DEVICES && *s->device)
        return hw_fail(-EINVAL, "[%s] already applies to certain devices only, so it cannot have the key 'devices'",
                       s->name);
    int rc = vb_take(&s->v, k, value);
    return rc ? hw_wrap(rc, "%s", name) : 0;
}

/* Sets a key; called by inih. Returns 0 for an error. ini_parse_string() then returns the line of the first error. */
static int on_verbs_policy_key(void *arg, const char *section, const char *name, const char *value)
{
    struct reader *x = arg;
    if (x->rc == 0)
        x->rc = set_section_key(x->p, section, name, value);
    return x->rc == 0;
}

static int fill_policy(struct vb_policy *p, const char *text, size_t len, const char *name)
{
    static const char mark[] = {'\xef', '\xbb', '\xbf'}; /* a byte order mark in UTF-8, which inih ignores too */
    if (len >= sizeof(mark) && memcmp(text, mark, sizeof(mark)) == 0) {
        text += sizeof(mark);
        len -= sizeof(mark);
    }
    HW_AUTO_FREE char *copy = malloc(len + 1);
    unsigned sections = 0, line = 1;
    for (size_t i = 0; i < len; i++)
        sections += text[i] == '[';
    sections = HW_MIN(sections, (unsigned)SECTIONS_MAX);
    p->section = calloc(sections + 1, sizeof(*p->section));
    if (!copy || !p->section)
        return hw_no_memory("the policy %s", name);
    if (memchr(text, 0, len))
        return hw_fail(-EINVAL, "%s: not a text file", name);
    if (len > FILE_MAX)
        return hw_fail(-E2BIG, "%s: the file is larger than %u bytes", name, FILE_MAX);
    for (size_t at = 0; at < len; line++) {
        const char *nl = memchr(text + at, '\n', len - at);
        size_t n = nl ? (size_t)(nl - text) - at : len - at;
        int rc = scan_line(p, text + at, n);
        if (rc)
            return hw_wrap(rc, "%s, line %u", name, line);
        at += n + 1;
    }
    struct reader x = {p, 0};
    memcpy(copy, text, len);
    copy[len] = 0;
    int at = ini_parse_string(copy, on_verbs_policy_key, &x);
    if (x.rc)
        return hw_wrap(x.rc, "%s, line %d", name, at);
    return at ? hw_fail(-EINVAL, "%s, line %d: neither a section nor KEY = VALUE", name, at) : 0;
}

int vb_policy_parse(const char *text, size_t len, const char *name, struct vb_policy **out)
{
    *out = calloc(1, sizeof(**out));
    int rc = *out ? fill_policy(*out, text, len, name) : hw_no_memory("the policy %s", name);
    if (rc) {
        vb_policy_free(*out);
        *out = NULL;
    }
    return rc;
}

int vb_policy_load(const char *path, struct vb_policy **out)
{
    struct stat s;
    HW_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    *out = NULL;
    if (fd < 0)
        return hw_fail(-errno, "policy %s: %s", path, hw_errno_text(errno));
    if (fstat(fd, &s) < 0 || !S_ISREG(s.st_mode))
        return hw_fail(-EINVAL, "policy %s: not a regular file", path);
    if ((s.st_mode & 022) || (s.st_uid != 0 && s.st_uid != geteuid()))
        return hw_fail(-EACCES,
                       "policy %s: users other than root and the user of this process can write to the file; run chmod "
                       "644 and chown root",
                       path);
    HW_AUTO_FREE char *text = malloc(FILE_MAX + 1);
    if (!text)
        return hw_no_memory("the policy");
    size_t have = 0;
    ssize_t n = 0;
    while (have < FILE_MAX + 1 && (n = read(fd, text + have, FILE_MAX + 1 - have)) > 0)
        have += (size_t)n;
    if (n < 0)
        return hw_fail(-errno, "policy %s: %s", path, hw_errno_text(errno));
    return vb_policy_parse(text, have, path, out);
}

void vb_policy_free(struct vb_policy *p)
{
    if (p)
        free(p->section);
    free(p);
}
