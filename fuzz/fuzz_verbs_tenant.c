/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile tenant against its broker: vb_serve() in one process, over a simulated operating system (tenant/tenant.h).
 * The first byte selects properties of the system, and the other bytes are the tenant's steps. Invariants: by the
 * simulated kernel's own count, no quota is exceeded. The requests that reach this kernel conform to the schema and the
 * policy, belong to the program that made them, and are for a device that the program may use. No memory of another
 * process is read or written for a program. A program only gets file descriptors of its devices and of their events.
 * The broker never waits for one program, closes all file descriptors that it opens, and ends when the programs have
 * ended.
 */
#include "fuzz/tenant/tenant.h"
#include "verbs/policy/policy.h"

static struct vb_policy *policies[2];

static void quiet(void *arg, int level, const char *line)
{
    (void)arg;
    T_SAY("log %d: %s", level, line);
}

static void tell(void)
{
    const struct {
        const char *what;
        uint64_t n;
    } totals[] = {
        {"steps of tenants", t_totals.steps},
        {"of them inside a call of the broker's", t_totals.races},
        {"containers", t_totals.inputs},
        {"opens", t_totals.opens},
        {"requests run", t_totals.requests},
        {"of them by stubs", t_totals.by_stub},
        {"stubs", t_totals.stubs},
        {"results copied", t_totals.copies},
        {"calls answered", t_totals.answered},
        {"refused", t_totals.refused},
        {"states told", t_totals.told},
        {"calls of the broker's", t_totals.calls},
    };
    fprintf(stderr, "note:");
    for (unsigned i = 0; i < HW_ARRAY_LEN(totals); i++)
        fprintf(stderr, "%s %llu %s", i ? "," : "", (unsigned long long)totals[i].n, totals[i].what);
    fprintf(stderr, "\n");
}

static void prepare(void)
{
    if (policies[1])
        return;
    for (unsigned i = 0; i < 2; i++) {
        const char *text = t_policy(i);
        if (vb_policy_parse(text, strlen(text), "tenant", &policies[i])) {
            fprintf(stderr, "%s\n", hw_error());
            abort();
        }
    }
    t_verbose = getenv("HAWSER_TEST_VERBOSE") != NULL;
    atexit(tell);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct hw_logger log = {.fn = quiet, .level = HAWSER_LOG_DEBUG};
    struct vb_audit audit;
    prepare();
    if (size == 0)
        return 0;
    t_os_start(data, size);
    t.wide = data[0] & 0x80;
    t_begin();
    vb_audit_open(&audit, NULL, &log);
    struct vb_container c = {.id = "tenant", .pid = 2};
    struct vb_broker_options o = {.kernel = &t_kernel,
                                  .policy = policies[t.wide],
                                  .log = &log,
                                  .audit = &audit,
                                  .state_dir = "/state",
                                  .cgroup = -1,
                                  .shown = 1};
    c.listener = t_broker_fd(t.listener);
    c.join = t_broker_fd(t.join);
    o.stop = t_broker_fd(t.stop);
    t.playing = true;
    int rc = vb_serve(&c, &o);
    t.playing = false;
    T_HOLDS(rc == 0, "it ends with %d: %s", rc, hw_error());
    for (int i = 0; i < T_FDS; i++)
        T_HOLDS(!t.broker[i].file || T_FD_FIRST + i == o.stop, "descriptor %d, of kind %d, stays open", i,
                t.broker[i].file->kind);
    t_os_end();
    t_totals.inputs++;
    return 0;
}
