/* SPDX-License-Identifier: Apache-2.0 */
/* Tests requests recorded from real programs (tests/data/verbs). With the installed policy, all requests of RC programs
 * pass, and the accounts are empty afterwards; some requests of a UD program are refused. With wider policies, UD
 * programs pass, too. */
#include "verbs_ask.h"

#include <ctype.h>
#include <inttypes.h>

#define HEADER 0x1000u

static struct {
    uint64_t at;
    size_t n;
    uint8_t bytes[4096];
} before[24], after[24];
static unsigned n_before, n_after, n_attrs, n_attrs_after;
static struct ib_uverbs_attr attr_after[24];
static unsigned requests, refusals;
static bool whole;

static size_t hex(const char *text, uint8_t *dst, size_t cap)
{
    size_t n = 0;
    for (; isxdigit((unsigned char)text[0]) && isxdigit((unsigned char)text[1]) && n < cap; text += 2) {
        char two[3] = {text[0], text[1], 0};
        dst[n++] = (uint8_t)strtoul(two, NULL, 16);
    }
    return n;
}

static int read_recorded(void *arg, uint64_t at, void *dst, size_t n)
{
    (void)arg;
    if (at >= HEADER && at + n <= HEADER + sizeof(M)) {
        memcpy(dst, (const uint8_t *)&M + (at - HEADER), n);
        return 0;
    }
    for (unsigned i = 0; i < n_before; i++)
        if (at >= before[i].at && at + n <= before[i].at + before[i].n) {
            memcpy(dst, before[i].bytes + (at - before[i].at), n);
            return 0;
        }
    return -EFAULT;
}

/* Copies the kernel's recorded answer to where the broker expects the answer. */
static void answer(void)
{
    for (unsigned i = 0; i < Q.n && i < n_attrs_after; i++) {
        struct vb_attr *a = &Q.attr[i];
        if (a->rule && (a->rule->kind == VB_HANDLE_NEW || a->rule->kind == VB_FD_NEW))
            a->raw.data = attr_after[i].data;
        for (unsigned k = 0; k < n_after; k++)
            if (a->rule && a->rule->kind == VB_OUT && a->len > 0 && after[k].at == a->raw.data)
                memcpy(Q.copy + a->at, after[k].bytes, after[k].n < a->len ? after[k].n : a->len);
    }
}

static void request(int result, const char *program)
{
    uint64_t ticket;
    if (vb_request_take(&Q, HEADER, read_recorded, NULL) < 0)
        return; /* test_verbs_request tests such requests */
    requests++;
    vb_judge(&R, &U, O, &Q, &V);
    if (V.rc) {
        refusals += *V.rule != 0;
        diag("%s: %s: %d by '%s': %s", program, Q.command->name, V.rc, V.rule, V.text);
        return;
    }
    if (vb_reserve(O, &Q, &ticket) < 0)
        exit(1);
    answer();
    vb_settle(O, &Q, ticket, result, true);
}

static void play(const char *name)
{
    char path[300], program[64] = "", *line = NULL;
    size_t cap = 0;
    bool done = false;
    int result = 0;
    snprintf(path, sizeof(path), "%s/verbs/%s.txt", TEST_DATA, name);
    FILE *f = fopen(path, "r");
    if (!f)
        exit(1);
    requests = refusals = 0;
    whole = true;
    while (getline(&line, &cap, f) > 0) {
        unsigned i;
        uint64_t at;
        int skip = 0;
        if (sscanf(line, "request %63s", program) == 1) {
            memset(&M, 0, sizeof(M));
            n_before = n_after = n_attrs = n_attrs_after = 0;
            done = false;
        } else if (strncmp(line, "header ", 7) == 0) {
            hex(line + 7, (uint8_t *)&M, sizeof(M.hdr));
        } else if (strncmp(line, "attr ", 5) == 0) {
            unsigned n = done ? n_attrs_after++ : n_attrs++;
            if (n >= 20)
                exit(1);
            hex(line + 5, (uint8_t *)(done ? &attr_after[n] : &M.attr[n]), sizeof(M.attr[0]));
        } else if (sscanf(line, "memory %u %" SCNx64 " %n", &i, &at, &skip) == 2) {
            unsigned k = done ? n_after++ : n_before++;
            if (k >= 24)
                exit(1);
            uint8_t *bytes = done ? after[k].bytes : before[k].bytes;
            size_t n = hex(line + skip, bytes, sizeof(after[k].bytes));
            if (done)
                after[k].at = at, after[k].n = n;
            else
                before[k].at = at, before[k].n = n;
        } else if (sscanf(line, "result %d", &result) == 1) {
            done = true;
        } else if (strncmp(line, "end", 3) == 0) {
            request(result, program);
        } else {
            whole = false;
        }
    }
    free(line);
    fclose(f);
}

int main(int argc, char **argv)
{
    char text[8192];
    FILE *f = fopen(argc > 1 ? argv[1] : "verbs/policy/policy.ini", "r");
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = 0;
    static const char *const rc[] = {"devinfo", "pingpong", "pingpong_events", "write_bw"};
    for (size_t i = 0; i < sizeof(rc) / sizeof(*rc); i++) {
        start(text);
        play(rc[i]);
        ok(whole && requests > 3 && refusals == 0, "%s: %u requests pass", rc[i], requests);
        bool none = U.mr_bytes == 0;
        for (unsigned t = VB_PD; t < VB_TYPES; t++)
            none &= U.n[t] == 0;
        ok(none, "and leave nothing");
    }
    start(text);
    play("ud_send");
    ok(whole && refusals > 0, "ud_send: %u of %u refused", refusals, requests);
    start("[default]\ndevices = *\nqp_types = rc uc ud\n");
    play("ud_send");
    ok(whole && requests > 3 && refusals == 0, "%u pass where UD may be", requests);
    start("[default]\ndevices = *\nqp_types = rc uc ud\nallow = multicast odp xrc raw flow dmabuf\nmax_dms = 10\n");
    play("pyverbs");
    ok(whole && requests > 20, "pyverbs: %u requests, of one kind each, %u refused", requests, refusals);
    vb_objects_free(O);
    vb_policy_free(P);
    return tap_done();
}
