/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/state/policy.h"
#include "base/size.h"
#include "sys/files.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <grp.h>
#include <ini.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Maximum length of a line, in bytes. inih splits a line that does not fit in 200 bytes (INI_MAX_LINE), and parses the
 * rest as a new line. */
#define LINE_MAX_BYTES 190

enum key { K_NICS, K_QUEUES, K_MAX_QUEUES, K_MAX_BINDINGS, K_MAX_RULES, K_MAX_BYTES, K_COUNT };
static const char *const keys[K_COUNT] = {
    [K_NICS] = "nics",
    [K_QUEUES] = "queues",
    [K_MAX_QUEUES] = "max-queues",
    [K_MAX_BINDINGS] = "max-bindings",
    [K_MAX_RULES] = "max-rules",
    [K_MAX_BYTES] = "max-bytes",
};

struct reader {
    struct hd_policy *p;
    char section[80]; /* as written in the file */
    unsigned seen;    /* bit i is set if key i has occurred in the section */
};

static void set_default_rights(struct hd_rights *r)
{
    r->max_queues = 16;
    r->max_bindings = 16;
    r->max_rules = 256;
    r->max_bytes = UINT64_MAX;
}

void hd_policy_default(struct hd_policy *p, uid_t uid)
{
    memset(p, 0, sizeof(*p));
    uid_t ids[] = {0, uid};
    for (size_t i = 0; i < (uid == 0 ? 1u : 2u); i++) {
        struct hd_rights *r = &p->section[p->n++];
        set_default_rights(r);
        r->id = ids[i];
        snprintf(r->who, sizeof(r->who), "user %u", (unsigned)ids[i]);
        r->nics[0] = '*';
    }
}

static int find_account_id(const char *name, bool group, uint32_t *id)
{
    uint64_t number;
    if (hw_parse_u64(name, 0, UINT32_MAX - 1, &number) == 0) {
        *id = (uint32_t)number;
        return 0;
    }
    errno = 0;
    const struct passwd *u = group ? NULL : getpwnam(name);
    const struct group *g = group ? getgrnam(name) : NULL;
    if (!u && !g)
        return hw_fail(-EINVAL, "unknown %s '%s'", group ? "group" : "user", name);
    *id = group ? g->gr_gid : u->pw_uid;
    return 0;
}

static int section_begin(struct reader *x, const char *name)
{
    struct hd_policy *p = x->p;
    bool group = strncmp(name, "group ", 6) == 0;
    if (strlen(name) >= sizeof(x->section) || (!group && strncmp(name, "user ", 5) != 0))
        return hw_fail(-EINVAL, "[%.60s]: expected [user NAME] or [group NAME]", name);
    if (p->n == HD_SECTIONS_MAX)
        return hw_fail(-E2BIG, "[%s]: the policy has more than %d sections", name, HD_SECTIONS_MAX);
    struct hd_rights *r = &p->section[p->n];
    memset(r, 0, sizeof(*r));
    int rc = find_account_id(name + (group ? 6 : 5), group, &r->id);
    if (rc)
        return rc;
    r->group = group;
    for (unsigned i = 0; i < p->n; i++)
        if (p->section[i].group == group && p->section[i].id == r->id)
            return hw_fail(-EINVAL, "[%s]: duplicate section for the same user or group", name);
    set_default_rights(r);
    snprintf(r->who, sizeof(r->who), "%.*s", (int)sizeof(r->who) - 1, name);
    snprintf(x->section, sizeof(x->section), "%s", name);
    x->seen = 0;
    p->n++;
    return 0;
}

/* Converts "eth1, eth2*" to "eth1\0eth2*\0\0". */
static int take_nics(struct hd_rights *r, const char *value)
{
    size_t at = 0;
    char text[HD_NICS_TEXT], *save = NULL;
    if (strlen(value) >= sizeof(text) - 1)
        return hw_fail(-EINVAL, "nics: the list is longer than %d bytes", HD_NICS_TEXT - 2);
    snprintf(text, sizeof(text), "%s", value);
    for (char *w = strtok_r(text, ", \t", &save); w; w = strtok_r(NULL, ", \t", &save)) {
        size_t len = strlen(w) + 1;
        memcpy(r->nics + at, w, len);
        at += len;
    }
    r->nics[at] = 0;
    return at ? 0 : hw_fail(-EINVAL, "nics: the list is empty");
}

/* Parses a list of queues, such as "4-7, 9". */
static int take_queues(struct hd_rights *r, const char *value)
{
    char text[200], *save = NULL;
    snprintf(text, sizeof(text), "%s", value);
    for (char *w = strtok_r(text, ", \t", &save); w; w = strtok_r(NULL, ", \t", &save)) {
        uint64_t from, to;
        char *dash = strchr(w, '-');
        if (dash)
            *dash = 0;
        int rc = hw_parse_u64(w, 0, HD_QUEUES_MAX - 1, &from);
        to = from;
        if (rc == 0 && dash)
            rc = hw_parse_u64(dash + 1, from, HD_QUEUES_MAX - 1, &to);
        if (rc)
            return hw_wrap(rc, "queues");
        r->queues_set = true;
        for (uint64_t q = from; q <= to; q++)
            hd_put(&r->queues, (uint32_t)q);
    }
    return r->queues_set ? 0 : hw_fail(-EINVAL, "queues: the list is empty");
}

static int take_count(uint32_t *out, enum key k, const char *value, uint32_t max)
{
    uint64_t n;
    int rc = hw_parse_u64(value, 0, max, &n);
    if (rc)
        return hw_wrap(rc, "%s", keys[k]);
    *out = (uint32_t)n;
    return 0;
}

static int set_policy_right(struct reader *x, enum key k, const char *value)
{
    struct hd_rights *r = &x->p->section[x->p->n - 1];
    int rc;
    switch (k) {
    case K_NICS:
        return take_nics(r, value);
    case K_QUEUES:
        return take_queues(r, value);
    case K_MAX_QUEUES:
        return take_count(&r->max_queues, k, value, HD_QUEUES_MAX);
    case K_MAX_BINDINGS:
        return take_count(&r->max_bindings, k, value, 1024);
    case K_MAX_RULES:
        return take_count(&r->max_rules, k, value, 65536);
    case K_MAX_BYTES:
        rc = hw_parse_size(value, &r->max_bytes);
        return rc ? hw_wrap(rc, "max-bytes") : 0;
    default:
        return hw_fail(-EINVAL, "no such key");
    }
}

static int apply_policy_entry(struct reader *x, const char *section, const char *name, const char *value)
{
    if (!*section)
        return hw_fail(-EINVAL, "'%s' precedes the first section ([user NAME] or [group NAME])", name);
    if (strcmp(section, x->section) != 0) {
        int rc = section_begin(x, section);
        if (rc)
            return rc;
    }
    for (unsigned k = 0; k < K_COUNT; k++) {
        if (strcmp(keys[k], name) != 0)
            continue;
        if (x->seen & 1u << k)
            return hw_fail(-EINVAL, "'%s' occurs twice in [%s]", name, section);
        x->seen |= 1u << k;
        return set_policy_right(x, (enum key)k, value);
    }
    return hw_fail(-EINVAL, "unknown key '%s'", name);
}

struct verdict {
    struct reader x;
    int rc;
};

/* Handles a key; called by inih. Returns 0 for an error. ini_parse_string() then returns the line of the first
 * error. */
static int on_policy_ini_entry(void *arg, const char *section, const char *name, const char *value)
{
    struct verdict *v = arg;
    if (v->rc == 0)
        v->rc = apply_policy_entry(&v->x, section, name, value);
    return v->rc == 0;
}

int hd_policy_parse(struct hd_policy *p, const char *text, const char *name)
{
    unsigned line = 1;
    memset(p, 0, sizeof(*p));
    for (const char *c = text; *c; line++) {
        size_t n = strcspn(c, "\n");
        if (n > LINE_MAX_BYTES)
            return hw_fail(-EINVAL, "%s, line %u: the line is longer than %d bytes", name, line, LINE_MAX_BYTES);
        c += n + (c[n] != 0);
    }
    struct verdict v = {.x = {.p = p}};
    int at = ini_parse_string(text, on_policy_ini_entry, &v);
    if (at == 0)
        for (unsigned i = 0; i < p->n; i++)
            if (!p->section[i].nics[0])
                return hw_fail(-EINVAL, "%s: [%s] has no NICs: add nics = eth1,eth2 or nics = *", name,
                               p->section[i].who);
    if (at == 0)
        return 0;
    if (v.rc)
        return hw_wrap(v.rc, "%s, line %d", name, at);
    return hw_fail(-EINVAL, "%s, line %d: neither a section nor KEY = VALUE", name, at);
}

int hd_policy_load(struct hd_policy *p, const char *path)
{
    struct stat s;
    HW_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return hw_fail(-errno, "policy %s: %s", path, hw_errno_text(errno));
    if (fstat(fd, &s) < 0 || !S_ISREG(s.st_mode))
        return hw_fail(-EINVAL, "policy %s: not a regular file", path);
    if ((s.st_mode & 022) || (s.st_uid != 0 && s.st_uid != geteuid()))
        return hw_fail(-EACCES,
                       "policy %s: users other than root and the user of this process can write to the file; run chmod "
                       "644 and chown root",
                       path);
    HW_AUTO_FREE char *text = NULL;
    size_t have = 0;
    int rc = hw_file_read(fd, HD_POLICY_FILE_MAX, path, &text, &have);
    if (rc)
        return rc;
    if (strlen(text) != have)
        return hw_fail(-EINVAL, "policy %s: not a text file", path);
    return hd_policy_parse(p, text, path);
}

const struct hd_rights *hd_policy_find(const struct hd_policy *p, uid_t uid, const gid_t *gids, unsigned n_gids)
{
    for (unsigned i = 0; i < p->n; i++)
        if (!p->section[i].group && p->section[i].id == uid)
            return &p->section[i];
    for (unsigned i = 0; i < p->n; i++)
        for (unsigned k = 0; k < n_gids; k++)
            if (p->section[i].group && p->section[i].id == gids[k])
                return &p->section[i];
    return NULL;
}

bool hd_policy_nic(const struct hd_rights *r, const char *nic)
{
    for (const char *w = r->nics; *w; w += strlen(w) + 1)
        if (fnmatch(w, nic, 0) == 0)
            return true;
    return false;
}
