/* SPDX-License-Identifier: Apache-2.0 */
/* Derives the status, and the addresses of NICs in containers, from the journals and the current state. */
#include "sandbox/move/move.h"
#include "sandbox/move/move_int.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *sb_state_name(enum sb_state s)
{
    static const char *const names[] = {"running", "ended", "under way", "broken", "unreadable"};
    return (size_t)s < HW_ARRAY_LEN(names) ? names[s] : "?";
}

static void fill_move_status(const struct sb_journal *j, int dir, struct sb_status *s)
{
    struct sb_ns host, there;
    bool own = sb_ns_own(&host) == 0, alive = sb_ns_find(j, dir, s->id, &there) == 0;
    s->state = sb_journal_locked(dir, s->id) ? SB_STATE_UNDER_WAY
               : !j->ready || j->returning   ? SB_STATE_BROKEN
               : sb_ended(j)                 ? SB_STATE_ENDED
                                             : SB_STATE_RUNNING;
    snprintf(s->netns, sizeof(s->netns), "%s", j->path);
    s->holder = j->holder;
    s->elsewhere = own && !sb_ns_same(&host.id, &j->host);
    s->n = j->nics;
    for (unsigned i = 0; i < j->nics; i++) {
        const struct sb_jnic *k = &j->nic[i];
        struct sb_link l;
        memcpy(s->nic[i].name, k->link.name, IFNAMSIZ);
        memcpy(s->nic[i].as, k->as, IFNAMSIZ);
        s->nic[i].here = own && !s->elsewhere && sb_nic_find(&host, k, k->link.name, &l) == 0;
        s->nic[i].there = alive && k->there && sb_nic_find(&there, k, k->as, &l) == 0;
    }
    if (own)
        sb_ns_close(&host);
    if (alive)
        sb_ns_close(&there);
}

static int report_journal_status(int dir, const char *id, int (*each)(const struct sb_status *s, void *arg), void *arg)
{
    HW_AUTO_FREE struct sb_status *s = calloc(1, sizeof(*s));
    struct sb_journal j;
    if (!s)
        return hw_no_memory("a status");
    snprintf(s->id, sizeof(s->id), "%s", id);
    int rc = sb_journal_load(&j, dir, id, false);
    if (rc == -ENOENT)
        return rc;
    if (rc == 0) {
        fill_move_status(&j, dir, s);
        sb_journal_free(&j);
    } else {
        s->state = SB_STATE_UNREADABLE;
        snprintf(s->error, sizeof(s->error), "%s", hw_error());
    }
    return each(s, arg);
}

static int by_journal_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_journal(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 8 && n - 8 <= SB_ID_MAX && strcmp(e->d_name + n - 8, ".journal") == 0;
}

int sb_status(const char *journal_dir, const char *id, int (*each)(const struct sb_status *s, void *arg), void *arg)
{
    int rc = id ? sb_id_check(id) : 0;
    if (rc < 0)
        return rc;
    HW_AUTO_CLOSE int dir = sb_dir_open(journal_dir, false);
    if (dir == -ENOENT)
        return id ? hw_fail(-ENOENT, "there is no journal of %s", id) : 0;
    if (dir < 0)
        return dir;
    if (id) {
        rc = report_journal_status(dir, id, each, arg);
        return rc == -ENOENT ? hw_fail(-ENOENT, "there is no journal of %s", id) : rc;
    }
    HW_AUTO_FREE struct dirent **list = NULL;
    int n = scandirat(dir, ".", &list, is_journal, by_journal_name);
    if (n < 0)
        return hw_fail(-errno, "reading the journal folder: %s", strerror(errno));
    for (int i = 0; i < n; i++) {
        char name[SB_ID_MAX + 1];
        snprintf(name, sizeof(name), "%.*s", (int)strlen(list[i]->d_name) - 8, list[i]->d_name);
        if (rc == 0)
            rc = report_journal_status(dir, name, each, arg);
        if (rc == -ENOENT) /* the journal was just removed, or each() has returned -ENOENT */
            rc = 0;
        free(list[i]);
    }
    return rc;
}

/* ---- addresses of NICs in containers ------------------------------------------------------------- */

struct taking {
    const char *dir;
    struct sb_ns own;
    int (*each)(const struct sb_taken *t, void *arg);
    void *arg;
};

static int take_addresses(const struct sb_journal *j, const struct taking *w)
{
    int rc = 0;
    for (size_t i = 0; i < j->n && rc == 0; i++) {
        const struct sb_record *r = &j->rec[i];
        if (r->kind != SB_ADDR || r->nic < 0 || (unsigned)r->nic >= j->nics)
            continue;
        struct sb_taken t = {.mtu = j->nic[r->nic].link.mtu};
        memcpy(t.nic, j->nic[r->nic].link.name, sizeof(t.nic));
        t.addr = sb_addr_bytes(r->data, &t.family, &t.prefix);
        if (t.addr)
            rc = w->each(&t, w->arg);
    }
    return rc;
}

static int take_journal(const struct sb_status *s, void *arg)
{
    const struct taking *w = arg;
    struct sb_journal j;
    if (s->state != SB_STATE_RUNNING)
        return 0;
    int dir = sb_dir_open(w->dir, false);
    int rc = dir < 0 ? dir : sb_journal_load(&j, dir, s->id, false);
    if (rc == 0) {
        rc = sb_ns_same(&j.host, &w->own.id) ? take_addresses(&j, w) : 0;
        sb_journal_free(&j);
    }
    hw_close(&dir);
    return rc == -ENOENT ? 0 : rc; /* the NICs were just restored, or each() has returned -ENOENT */
}

int sb_taken(const char *journal_dir, int (*each)(const struct sb_taken *t, void *arg), void *arg)
{
    struct taking w = {.dir = journal_dir, .each = each, .arg = arg};
    int rc = sb_ns_own(&w.own);
    if (rc == 0)
        rc = sb_status(journal_dir, NULL, take_journal, &w);
    sb_ns_close(&w.own);
    return rc;
}
