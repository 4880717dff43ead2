/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/drill/drill.h"

#include <math.h>

#define ENOUGH 0.9 /* goodput has recovered at this fraction of the other NICs' earlier rate */

/* Returns the number of bytes that all other NICs carried in the windows [from, to), or an estimate if nic is not a NIC
 * of this node. */
static double count_others(const struct drill_load *l, size_t from, size_t to, const char *nic)
{
    double sum = 0;
    bool found = false;
    for (size_t i = 0; i < l->n_nics; i++) {
        bool is = strcmp(l->nic[i], nic) == 0;
        found |= is;
        if (!is)
            sum += (double)(l->win[to].nic[i] - l->win[from].nic[i]); /* counters at the start of a window */
    }
    /* an unknown name is a NIC of the peer, and any NIC of this node may be its partner */
    return found || l->n_nics < 2 ? sum : sum * (double)(l->n_nics - 1) / (double)l->n_nics;
}

/* Returns the milliseconds from the fault to the first of two consecutive windows with enough bytes, or NAN if there
 * are none within DRILL_BACK windows. */
static double find_back(const struct drill_load *l, const struct drill_fault *f, size_t first, double enough)
{
    for (size_t i = first; i < first + DRILL_BACK && i + 1 < l->n_win; i++) {
        uint64_t start = l->start + i * DRILL_WINDOW;
        if ((double)l->win[i].bytes >= enough && (double)l->win[i + 1].bytes >= enough)
            return start <= f->at ? 0 : (double)(start - f->at) / 1e6;
    }
    return NAN;
}

static void judge_fault(const struct drill_load *l, struct drill_fault *f)
{
    size_t w = f->at < l->start ? 0 : (f->at - l->start) / DRILL_WINDOW;
    f->judged = w > DRILL_BEFORE && w + DRILL_BACK + 1 < l->n_win;
    if (!f->judged)
        return;
    double enough = ENOUGH * count_others(l, w - DRILL_BEFORE, w, f->nic) / DRILL_BEFORE;
    f->back_ms = find_back(l, f, w, enough);
    uint64_t longest = 0;
    size_t end = HW_MIN(w + DRILL_AFTER, l->n_win);
    for (size_t i = w; i < end; i++)
        longest = HW_MAX(longest, l->win[i].longest);
    f->longest_ms = (double)longest / 1e6;
    f->again = l->win[end - 1].again - l->win[w].again;
}

void drill_judge(struct drill_load *l)
{
    for (size_t i = 0; i < l->n_faults; i++)
        judge_fault(l, &l->fault[i]);
}
