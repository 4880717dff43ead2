/* SPDX-License-Identifier: Apache-2.0 */
/* Two parts of the demo: a KV cache transfer through NIXL, and mesh on eight nodes. */
#include "tool/demo/demo.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KV_MS      60000
#define KV_PORT    "20077" /* port for NIXL's metadata in a node of the lab */
#define MESH_MS    120000
#define MESH_NODES 8
#define MESH_NICS  2
#define MESH_RATE  40000000ull
#define MESH_BAD   12000000ull
#define BAD_NODE   "f"
#define BAD_NIC    1
#define BAD_NAME   "eth1"

/* ---- KV cache transfer through NIXL -------------------------------------------------------------- */

static int start_pusher(struct demo *d, const char *node, char *const argv[], pid_t *pid)
{
    HW_AUTO_CLOSE int fd = open(d->kv, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    return fd < 0 ? hw_fail(-errno, "writing %s: %s", d->kv, strerror(errno))
                  : hw_lab_spawn(d->lab, node, argv, fd, pid);
}

int demo_push_kv(struct demo *d)
{
    char decode[] = "decode", prefill[] = "prefill", host[] = "198.18.0.1", port[] = KV_PORT;
    char *to[] = {(char *)d->kv_push, decode, port, NULL};
    char *from[] = {(char *)d->kv_push, prefill, host, port, NULL};
    if (!d->kv_push) {
        printf("\nThe KV cache transfer through NIXL is left out, because --kv-push was not given.\n");
        fflush(stdout);
        return 0;
    }
    printf("\nNow a KV cache goes from node b to node a through NIXL, with %s:\n", d->kv_push);
    fflush(stdout);
    const uint64_t deadline = hw_deadline(KV_MS);
    int rc = start_pusher(d, "a", to, &d->decode);
    if (rc < 0 || (rc = start_pusher(d, "b", from, &d->bench)) < 0)
        return rc;
    rc = demo_await(&d->bench, deadline);
    int other = rc < 0 ? rc : demo_await(&d->decode, deadline);
    if (rc > 0 && other < 0)
        return hw_fail(-EIO, "the sender of the KV cache failed (exit code %d); its output is in %s", rc, d->kv);
    if (rc > 0 || other > 0)
        return hw_fail(-EIO, "the KV cache transfer failed (exit codes %d and %d); its output is in %s", rc, other,
                       d->kv);
    return other;
}

int demo_check_kv(struct demo *d)
{
    unsigned long blocks = 0, verified = 0, most = 0;
    double ms = 0, GBps = 0;
    if (!d->kv_push) {
        demo_prove(d, "Not shown: a KV cache transfer through NIXL, because --kv-push was not given.");
        return 0;
    }
    FILE *f = fopen(d->kv, "re");
    if (!f)
        return hw_fail(-errno, "opening %s: %s", d->kv, strerror(errno));
    char line[256];
    while (fgets(line, sizeof line, f)) {
        /* The program prints lines of two forms: "request 1: 8192 blocks pushed in 274.1 ms, 1.96 GB/s" and "request
         * 1: 8192 blocks of 65536 bytes, all of them verified". */
        const char *at = strncmp(line, "request ", 8) == 0 ? strchr(line, ':') : NULL;
        char *end = line;
        const unsigned long n = at ? strtoul(at + 1, &end, 10) : 0;
        if (strncmp(end, " blocks pushed in ", 18) == 0 && n > blocks) {
            blocks = n;
            ms = strtod(end + 18, &end);
            GBps = strncmp(end, " ms, ", 5) == 0 ? strtod(end + 5, &end) : 0;
        } else if (n && strstr(line, "all of them verified")) {
            verified += n;
            most = HW_MAX(most, n);
        }
    }
    fclose(f);
    if (blocks == 0 || most != blocks || !(GBps > 0))
        return hw_fail(-EIO, "the KV cache transfer was not verified; its output is in %s", d->kv);
    unlink(d->kv);
    demo_prove(d,
               "A KV cache went through NIXL: %lu blocks of 64 KiB moved into scattered blocks of the other node's "
               "cache in %.0f ms, at %.3f GB/s; %lu blocks in all were verified.",
               blocks, ms, GBps, verified);
    return 0;
}

/* ---- mesh ---------------------------------------------------------------------------------------- */

static int write_hosts(const struct demo *d)
{
    FILE *f = fopen(d->hosts, "we");
    for (int i = 0; f && i < MESH_NODES; i++)
        fprintf(f, "%c addr=198.18.0.%d\n", 'a' + i, i + 1);
    if (!f || fclose(f) != 0)
        return hw_fail(-errno, "writing %s: %s", d->hosts, strerror(errno));
    return 0;
}

static int start_mesh(struct demo *d)
{
    char ssh[sizeof d->self + sizeof d->lab + 32];
    snprintf(ssh, sizeof ssh, "%s lab exec %s/{} --", d->self, d->lab);
    /* the measurements are few and short, because eight nodes share this machine's CPUs */
    const char *const argv[] = {d->self,   "mesh",   "--hosts", d->hosts,   "--ssh",      ssh,
                                "--size",  "32KiB",  "--depth", "4",        "--duration", "150ms",
                                "--quick", "--json", d->mesh,   "--report", d->mesh_page, NULL};
    pid_t pid = fork();
    if (pid == 0) {
        execv(d->self, (char *const *)argv);
        _exit(127);
    }
    if (pid < 0)
        return hw_fail(-errno, "starting mesh: %s", strerror(errno));
    d->bench = pid;
    return 0;
}

int demo_run_mesh(struct demo *d)
{
    struct hw_lab_spec spec = {.name = d->lab, .nodes = MESH_NODES, .nics = MESH_NICS};
    for (unsigned i = 0; i < MESH_NICS; i++)
        spec.rate[i] = MESH_RATE;
    printf("\nFinally `hawser mesh` runs on eight nodes with two NICs each; %s of node %s has %.0f %% of the other "
           "NICs' rate:\n",
           BAD_NAME, BAD_NODE, 100.0 * MESH_BAD / MESH_RATE);
    fflush(stdout);
    int rc = write_hosts(d);
    if (rc < 0 || (rc = hw_lab_up(&spec)) < 0)
        return rc;
    d->up = true;
    rc = hw_lab_rate(d->lab, BAD_NODE, BAD_NIC, MESH_BAD);
    if (rc < 0 || (rc = start_mesh(d)) < 0)
        return rc;
    rc = demo_await(&d->bench, hw_deadline(MESH_MS));
    unlink(d->hosts);
    if (rc >= 0 && rc != TOOL_FAILED)
        return hw_fail(-EIO, "mesh found no bad NIC, or could not run (exit code %d)", rc);
    return HW_MIN(rc, 0);
}

int demo_check_mesh(struct demo *d)
{
    json_auto_t *lines = demo_read_lines(d->mesh);
    const char *said = NULL;
    unsigned others = 0;
    size_t i;
    json_t *o;
    if (!lines)
        return -EIO;
    json_array_foreach(lines, i, o)
    {
        if (strcmp(demo_get_text(o, "type"), "finding") != 0)
            continue;
        const bool bad =
            strcmp(demo_get_text(o, "node"), BAD_NODE) == 0 && strcmp(demo_get_text(o, "nic"), BAD_NAME) == 0 && !said;
        if (bad)
            said = demo_get_text(o, "text");
        else
            others++;
    }
    if (!said)
        return hw_fail(-EIO, "mesh did not report %s of node %s", BAD_NAME, BAD_NODE);
    demo_prove(d, "mesh found the one bad NIC among sixteen NICs of eight nodes: \"%s\".%s", said,
               others ? " (mesh reported other findings too.)" : "");
    return 0;
}
