/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox snapshot, and the functions with which other actions take snapshots. */
#include "net/sysfs.h"
#include "sandbox/plan/snapshot.h"
#include "tool/opts.h"
#include "tool/sandbox/sandbox.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int sandbox_take(struct sbx_snapshot *out, const char *dir, bool no_addresses)
{
    *out = (struct sbx_snapshot){0};
    int root = hw_root_open(dir ? dir : "/");
    if (root < 0)
        return root;
    int rc = sbx_snapshot_take(out, root, &(struct sbx_take){.live = !dir, .no_addresses = no_addresses});
    hw_close(&root);
    return rc < 0 ? hw_wrap(rc, "%s", dir ? dir : "/") : 0;
}

int sandbox_publish(const char *path, int (*put)(const void *arg, FILE *f), const void *arg)
{
    char part[4096];
    int rc = tool_check_replace(path);
    if (rc < 0)
        return rc;
    if ((size_t)snprintf(part, sizeof(part), "%s.part", path) >= sizeof(part))
        return hw_fail(-ENAMETOOLONG, "%s: the name is too long", path);
    FILE *f = fopen(part, "we");
    if (!f)
        return hw_fail(-errno, "%s: %s", part, strerror(errno));
    rc = put(arg, f);
    if (fclose(f) != 0 && rc == 0)
        rc = hw_fail(-EIO, "writing %s failed", part);
    if (rc == 0 && rename(part, path) < 0)
        rc = hw_fail(-errno, "%s: %s", path, strerror(errno));
    if (rc < 0)
        unlink(part);
    return rc;
}

static int put_snapshot(const void *s, FILE *f)
{
    return sbx_snapshot_write(s, f);
}

int sandbox_save(const struct sbx_snapshot *s, const char *path)
{
    return sandbox_publish(path, put_snapshot, s);
}

static int take_and_write(const char *dir, const char *out, bool no_addresses)
{
    struct sbx_snapshot s;
    int rc = sandbox_take(&s, dir, no_addresses);
    if (rc == 0)
        rc = out ? sandbox_save(&s, out) : sbx_snapshot_write(&s, stdout);
    if (rc == 0 && s.skipped)
        fprintf(stderr, "hawser sandbox snapshot: %zu device%s left out\n", s.skipped,
                s.skipped == 1 ? " with an invalid name or path was" : "s with invalid names or paths were");
    sbx_snapshot_free(&s);
    return rc < 0 ? tool_fail("sandbox snapshot", "%s", hw_error()) : TOOL_OK;
}

struct snapshot_args {
    const char *dir, *out;
    bool no_addresses;
};

int sandbox_snapshot_main(int argc, char **argv)
{
    static const struct opt rows[] = {
        OPT_TEXT("out", 'o', "FILE", struct snapshot_args, out, "write to FILE (default: standard output)"),
        OPT_TEXT("sysfs", 0, "DIR", struct snapshot_args, dir,
                 "describe the machine whose sys/ and proc/ are below DIR (default: this machine)"),
        OPT_FLAG("no-addresses", 'A', struct snapshot_args, no_addresses,
                 "leave out MAC and IP addresses, GIDs, GUIDs and the host's name"),
        {0},
    };
    static const struct opts o = {
        .cmd = "sandbox snapshot",
        .args = "[OPTION...]",
        .about = "Writes the data in sysfs about this machine's PCI devices, NICs, RDMA devices and NUMA nodes as one "
                 "JSON file, which `hawser topo` and `hawser sandbox` read with --from.",
        .rows = rows};
    struct snapshot_args a = {0};
    int rc = opts_parse(&o, &a, argc, argv);
    return rc != OPTS_GO ? rc : take_and_write(a.dir, a.out, a.no_addresses);
}
