/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps writes in flight: starts a new write for each completed write. Records the confirmed bytes of each window. */
#include "tool/drill/drill.h"
#include "tool/tool.h"

#include <stdlib.h>
#include <string.h>

#define OP_MS    60000 /* ms until a write fails */
#define EVENTS   64
#define WINDOWS  1024 /* initial capacity */
#define FILE_MAX 1e9  /* largest time in a --marks file, in seconds */

static int post_write(struct drill_load *l, uint64_t slot)
{
    const struct measure *m = l->m;
    uint64_t at = buffer_offset(&m->buf, slot);
    const struct hawser_vec v = {
        .mem = m->buf.mem, .offset = at, .length = l->size, .region = &m->region, .remote_offset = at};
    const struct hawser_op_options o = {.size = sizeof o, .user = slot, .timeout_ms = OP_MS};
    l->began[slot] = hw_now();
    return hawser_write(l->s->peer, &v, 1, &o, NULL);
}

/* ---- windows of 10 ms ------------------------------------------------------------------------------------ */

/* Returns the window for this time, after adding the missing windows up to it. Returns NULL if out of memory. */
static struct drill_window *get_window(struct drill_load *l, uint64_t now)
{
    size_t i = (now - l->start) / DRILL_WINDOW;
    if (i >= l->cap_win) {
        size_t cap = HW_MAX(2 * l->cap_win, HW_MAX(i + 1, (size_t)WINDOWS));
        struct drill_window *win = realloc(l->win, cap * sizeof *win);
        if (!win)
            return NULL;
        l->win = win;
        l->cap_win = cap;
    }
    /* a new window has the counters of the window before until note_nics() samples it */
    for (; l->n_win <= i; l->n_win++) {
        l->win[l->n_win] = (struct drill_window){0};
        if (l->n_win) {
            memcpy(l->win[l->n_win].nic, l->win[l->n_win - 1].nic, sizeof l->win[0].nic);
            l->win[l->n_win].again = l->win[l->n_win - 1].again;
        }
    }
    return &l->win[i];
}

/* Returns the start of the last window in which the NIC had more confirmed bytes than in the window before, or the
 * start of the load if there is none. */
static uint64_t find_last_progress(const struct drill_load *l, size_t nic)
{
    size_t i = l->n_win - 1;
    while (i > 0 && l->win[i].nic[nic] == l->win[i - 1].nic[nic])
        i--;
    return l->start + i * DRILL_WINDOW;
}

/* Returns the newest unfinished fault of a NIC, or NULL. */
static struct drill_fault *find_fault(struct drill_load *l, const char *nic)
{
    for (size_t i = l->n_faults; i-- > 0;)
        if (!l->fault[i].until && strcmp(l->fault[i].nic, nic) == 0)
            return &l->fault[i];
    return NULL;
}

/* Records a fault when connections of the NIC go down, and the end of the fault when all of them are up again. */
static void note_change(struct drill_load *l, size_t nic, uint32_t up, uint64_t now)
{
    struct drill_fault *f = find_fault(l, l->nic[nic]);
    if (f && up == l->channels[nic])
        f->until = now;
    else if (!f && up < l->up[nic])
        (void)drill_add_fault(l, l->nic[nic], "lost", find_last_progress(l, nic));
}

static int note_nics(struct drill_load *l, uint64_t now)
{
    struct hawser_nic_stats st[TP_MAX_NICS];
    size_t n = TP_MAX_NICS;
    struct drill_window *w = get_window(l, now);
    if (!w)
        return hw_no_memory("%zu windows", l->n_win);
    int rc = hawser_nic_stats(l->s->peer, st, &n);
    if (rc < 0)
        return rc;
    n = HW_MIN(n, (size_t)TP_MAX_NICS);
    w->again = 0;
    for (size_t i = 0; i < n; i++) {
        if (i >= l->n_nics) {
            memcpy(l->nic[i], st[i].nic, HAWSER_NIC_NAME);
            l->up[i] = st[i].channels_up;
            l->n_nics = i + 1;
        }
        l->channels[i] = st[i].channels;
        if (l->watch && st[i].channels_up != l->up[i])
            note_change(l, i, st[i].channels_up, now);
        l->up[i] = st[i].channels_up;
        w->nic[i] = st[i].tx_bytes;
        w->again += st[i].retaken_bytes;
    }
    return 0;
}

/* ---- running the load -------------------------------------------------------------------------------------- */

/* Waits at most wait_ms for completed operations, handles them and, if again is true, starts the next ones. Updates
 * *under_way, the number of writes in flight. */
static int take_ended(struct drill_load *l, int wait_ms, bool again, uint32_t *under_way)
{
    struct hawser_completion c[EVENTS];
    int n = hawser_poll_wait(l->s->h, c, EVENTS, wait_ms), rc = n < 0 ? n : 0;
    uint64_t now = hw_now();
    struct drill_window *w = n > 0 ? get_window(l, now) : NULL;
    if (n > 0 && !w)
        rc = hw_no_memory("%zu windows", l->n_win);
    for (int i = 0; i < n && rc == 0; i++) {
        if (c[i].event != HAWSER_ENDED)
            continue;
        --*under_way;
        if (c[i].result < 0)
            return hw_fail(c[i].result, "a write of %llu bytes failed: %s", (unsigned long long)l->size,
                           hawser_error());
        uint64_t took = now - l->began[c[i].user];
        w->bytes += l->size;
        w->longest = HW_MAX(w->longest, took);
        hw_hist_add(l->hist, took);
        l->ops++;
        if (!again)
            continue;
        rc = post_write(l, c[i].user);
        *under_way += rc == 0;
    }
    return rc;
}

/* Runs the load until tick() or a signal ends it. */
static int go_on(struct drill_load *l, uint32_t *under_way)
{
    int rc = 0;
    uint64_t next = l->start;
    while (rc == 0) {
        uint64_t now = hw_now();
        if (now >= next) {
            next += ((now - next) / DRILL_WINDOW + 1) * DRILL_WINDOW;
            rc = note_nics(l, now);
            if (rc == 0)
                rc = session_stopped(l->s) ? 1 : l->tick(l->arg, now);
            continue;
        }
        rc = take_ended(l, (int)((next - now + HW_MS - 1) / HW_MS), true, under_way);
    }
    return HW_MIN(rc, 0);
}

int drill_load_run(struct drill_load *l)
{
    uint32_t under_way = 0;
    int rc = 0;
    l->began = calloc(l->depth, sizeof *l->began);
    l->hist = calloc(1, sizeof *l->hist);
    l->fault = calloc(DRILL_FAULTS, sizeof *l->fault);
    if (!l->began || !l->hist || !l->fault)
        return hw_no_memory("the results");
    hw_hist_reset(l->hist);
    l->start = hw_now();
    for (uint32_t i = 0; i < l->depth && rc == 0; i++) {
        rc = post_write(l, i);
        under_way += rc == 0;
    }
    if (rc == 0)
        rc = go_on(l, &under_way);
    /* every write ends by its deadline */
    for (uint64_t end = hw_deadline(OP_MS + 5000); rc == 0 && under_way && hw_now() < end;)
        rc = take_ended(l, 100, false, &under_way);
    if (rc == 0 && under_way)
        rc = hw_fail(-ETIMEDOUT, "writes that did not complete: %u", under_way);
    return rc;
}

void drill_load_free(struct drill_load *l)
{
    free(l->win);
    free(l->began);
    free(l->hist);
    free(l->fault);
    *l = (struct drill_load){0};
}

/* ---- externally caused faults -------------------------------------------------------------------------------- */

struct drill_fault *drill_add_fault(struct drill_load *l, const char *nic, const char *text, uint64_t at)
{
    if (l->n_faults == DRILL_FAULTS)
        return NULL;
    struct drill_fault *f = &l->fault[l->n_faults++];
    *f = (struct drill_fault){.at = at};
    snprintf(f->nic, sizeof f->nic, "%s", nic);
    snprintf(f->text, sizeof f->text, "%s", text);
    return f;
}

static void read_fault(struct drill_load *l, const char *line)
{
    char nic[HAWSER_NIC_NAME], text[64];
    char *rest;
    double t = strtod(line, &rest);
    if (rest == line || sscanf(rest, " %15s %63[^\n]", nic, text) != 2 || !(t >= 0 && t < FILE_MAX))
        return;
    uint64_t at = (uint64_t)(t * 1e9);
    size_t len = strlen(text);
    bool up = len >= 2 && strcmp(text + len - 2, "up") == 0;
    struct drill_fault *f = up ? find_fault(l, nic) : NULL;
    if (f)
        f->until = at;
    else if (!up)
        (void)drill_add_fault(l, nic, text, at);
}

int drill_read_faults(struct drill_load *l, const char *path)
{
    FILE *f = fopen(path, "re");
    char line[256];
    if (!f)
        return hw_fail(-errno, "opening %s: %s", path, strerror(errno));
    while (fgets(line, sizeof line, f))
        read_fault(l, line);
    fclose(f);
    return 0;
}
