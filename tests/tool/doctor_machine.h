/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helpers for the doctor tests. The tests make each check pass, warn or fail, and skip, on a simulated machine: files
 * under a temporary root, and recorded answers for queries that do not read a file. covered() verifies that every check
 * was tested this way.
 */
#ifndef DOCTOR_MACHINE_H
#define DOCTOR_MACHINE_H

#include "tests/tap.h"
#include "tool/doctor/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];
static struct dr_machine m;
__attribute__((unused)) static struct dr_pair pair;
static const char *env[8];
static struct {
    const char *id;
    unsigned seen; /* bit i is set if enum dr_outcome i was seen */
} seen[64];

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *f)
{
    (void)st;
    (void)kind;
    (void)f;
    return remove(path);
}

__attribute__((unused)) static void wipe(void)
{
    if (*dir)
        nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    *dir = 0;
}

/* Creates the parent folders of path, which is relative to the root. */
static void folders(const char *path)
{
    char part[256];
    for (const char *p = strchr(path, '/'); p; p = strchr(p + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(p - path), path);
        mkdirat(m.root, part, 0755);
    }
}

__attribute__((unused)) static void put_bytes(const char *path, const void *data, size_t n)
{
    folders(path);
    int fd = openat(m.root, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        abort();
    close(fd);
}

__attribute__((unused)) static void put(const char *path, const char *text)
{
    put_bytes(path, text, strlen(text));
}

__attribute__((unused)) static void put_socket(const char *path)
{
    folders(path);
    if (mknodat(m.root, path, S_IFSOCK | 0600, 0) < 0)
        abort();
}

/* Resets the machine to an empty one: no files, NICs, GPUs or recorded answers. */
__attribute__((unused)) static void fresh(void)
{
    if (m.root > 0)
        close(m.root);
    wipe();
    snprintf(dir, sizeof dir, "/tmp/hawser-doctor-XXXXXX");
    if (!mkdtemp(dir))
        abort();
    memset(env, 0, sizeof env);
    m = (struct dr_machine){.root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                            .env = env,
                            .release = "6.12.95-test",
                            .arch = "x86_64",
                            .netdev_rc = -ENOENT,
                            .n_gpus = -ENODEV,
                            .cuda_why = "no libcuda.so.1",
                            .moment_ms = 300};
    if (m.root < 0)
        abort();
}

/* Adds a NIC without any known attributes. */
__attribute__((unused)) static struct dr_nic *nic(const char *name, const char *driver)
{
    struct dr_nic *n = &m.nic[m.n_nics++];
    *n = (struct dr_nic){.physical = true,
                         .up = true,
                         .split = -EOPNOTSUPP,
                         .thresh = -ENODATA,
                         .buf_len = -ENODATA,
                         .gro_hw = -EOPNOTSUPP,
                         .ntuple = -EOPNOTSUPP,
                         .rules = -EOPNOTSUPP,
                         .queues = -EOPNOTSUPP,
                         .queues_max = -EOPNOTSUPP,
                         .combined_max = -EOPNOTSUPP,
                         .rss_queues = -EOPNOTSUPP,
                         .rss_last = -EOPNOTSUPP,
                         .devmem_rc = -ENODATA};
    snprintf(n->name, sizeof n->name, "%s", name);
    snprintf(n->driver, sizeof n->driver, "%s", driver);
    return n;
}

__attribute__((unused)) static void address(struct dr_nic *n, uint8_t net, uint8_t host)
{
    struct hw_nic *a = &n->addr[n->n_addrs++];
    a->prefix = 24;
    a->addr.in.sin_family = AF_INET;
    memcpy(&a->addr.in.sin_addr, (uint8_t[4]){198, 18, net, host}, 4);
}

/* Returns whether a remedy that does not survive a reboot comes with a permanent version, and neither text is
 * truncated. A limits.conf line with a wildcard needs a line for root as well, because wildcards do not apply to root
 * (limits.conf(5)). */
static bool lasts(const struct dr_result *r)
{
    static const char *const volatiles[] = {"sysctl -w", "ethtool -G",   "ethtool -K",  "ethtool -L", "ethtool -X",
                                            "modprobe",  "ip route add", "ip addr add", "ulimit",     "export "};
    bool passes = strncmp(r->mend, "ip link set", 11) == 0 && strstr(r->mend, " mtu ");
    passes |= strncmp(r->mend, "echo ", 5) == 0 && (strstr(r->mend, "> /proc/") || strstr(r->mend, "> /sys/"));
    for (size_t i = 0; i < sizeof volatiles / sizeof *volatiles; i++)
        passes |= strncmp(r->mend, volatiles[i], strlen(volatiles[i])) == 0;
    bool star = strstr(r->mend, "* - ") && !strstr(r->mend, "root - ");
    star |= strstr(r->keep, "* - ") && !strstr(r->keep, "root - ");
    bool whole = strlen(r->mend) < sizeof r->mend - 1 && strlen(r->keep) < sizeof r->keep - 1;
    return (!passes || *r->keep) && !star && whole;
}

/* Runs check id on m (and pair), and checks that its first result has the outcome `want` and contains the text `says`.
 * WARN and FAIL must include a remedy; other outcomes must not. */
__attribute__((unused)) static void check(const char *id, enum dr_outcome want, const char *says)
{
    struct dr_report d;
    const struct dr_result *r = NULL;
    bool is_pair = strncmp(id, "pair.", 5) == 0;
    if (dr_run(&d, &m, is_pair ? &pair : NULL, is_pair ? 1u << DR_PAIR : (1u << DR_PAIR) - 1) < 0)
        abort();
    for (size_t i = 0; i < d.n && !r; i++)
        if (strcmp(d.r[i].check->id, id) == 0)
            r = &d.r[i];
    bool good = r && r->outcome == want && strstr(r->found, says);
    bool mends = r && (r->mend[0] != 0) == (r->outcome == DR_WARN || r->outcome == DR_FAIL);
    mends = mends && lasts(r);
    ok(good && mends, "%s: %s, %s", id, dr_outcome_name(want), r ? r->found : "nothing was said");
    if (!good || !mends)
        diag("wanted %s with '%s'; got %s, '%s', mend '%s', keep '%s'", dr_outcome_name(want), says,
             r ? dr_outcome_name(r->outcome) : "-", r ? r->found : "-", r ? r->mend : "-", r ? r->keep : "-");
    size_t k = 0;
    while (k < HW_ARRAY_LEN(seen) - 1 && seen[k].id && strcmp(seen[k].id, id) != 0)
        k++;
    seen[k].id = id;
    seen[k].seen |= 1u << want;
    dr_free(&d);
}

/* Checks that every check in these groups has passed, has warned or failed, and has been skipped if it can be
 * skipped. */
__attribute__((unused)) static void covered(unsigned groups)
{
    size_t missing = 0;
    for (size_t i = 0; i < dr_n_checks; i++) {
        if (!(groups & 1u << dr_checks[i].group))
            continue;
        size_t k = 0;
        while (k < HW_ARRAY_LEN(seen) && seen[k].id && strcmp(seen[k].id, dr_checks[i].id) != 0)
            k++;
        unsigned got = k < HW_ARRAY_LEN(seen) && seen[k].id ? seen[k].seen : 0;
        /* limits can always be read, and a pair either has a session or has none, so these checks are never skipped */
        bool always = dr_checks[i].group == DR_LIMITS || strcmp(dr_checks[i].id, "pair.session") == 0;
        bool good = got & 1u << DR_PASS && got & (1u << DR_WARN | 1u << DR_FAIL) && (got & 1u << DR_SKIP || always);
        missing += !good;
        if (!good)
            diag("%s was not made to pass, to complain and to skip", dr_checks[i].id);
        for (size_t j = 0; j < i; j++)
            missing += strcmp(dr_checks[j].id, dr_checks[i].id) == 0;
    }
    is_int(missing, 0, "every check was made to pass, to complain and to skip");
}

#endif
