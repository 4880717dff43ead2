/* SPDX-License-Identifier: Apache-2.0 */
/* hawser topo: shows GPUs, NICs, the PCI tree between them, and which NICs serve which GPU. */
#include "net/sysfs.h"
#include "tool/opts.h"
#include "tool/topo/topo.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct args {
    const char *from, *save, *svg;
    bool json;
    struct hw_plan_want want;
};

static const struct opt rows[] = {
    OPT_TEXT("from", 'f', "FILE", struct args, from, "show the machine whose snapshot is in FILE (see --save)"),
    OPT_TEXT("save", 0, "FILE", struct args, save,
             "write a snapshot of this machine to FILE, without addresses, and exit"),
    OPT_TEXT("gpus", 'g', "LIST", struct args, want.gpus, "plan only for these GPUs, as in 0-3,6 (default: all)"),
    OPT_TEXT("nics", 'n', "NIC[,..]", struct args, want.nics, "plan only with these NICs (default: see hawser(1))"),
    OPT_TEXT("map", 'm', "MAP", struct args, want.map,
             "use exactly these NICs for these GPUs: \"0,1=eth1;2-3=eth2,eth4\""),
    OPT_FLAG("json", 'j', struct args, json, "print JSON"),
    OPT_TEXT("svg", 0, "FILE", struct args, svg, "also write an SVG drawing to FILE"),
    {0},
};

/* Returns the PCI addresses of the GPUs in CUDA's order. On failure returns NULL; t->cuda has the reason, and GPUs
 * are ordered by PCI address. */
static struct hw_bdf *ask_cuda(struct topo *t, size_t *n)
{
    int count = hw_cuda_count();
    struct hw_bdf *at = NULL;
    if (count >= 0) {
        at = calloc((size_t)count + 1, sizeof(*at));
        t->info = calloc((size_t)count + 1, sizeof(*t->info));
    }
    bool good = at && t->info;
    if (count >= 0 && !good)
        hw_no_memory("CUDA's GPUs");
    for (int i = 0; i < count && good; i++)
        good = hw_cuda_info(i, &t->info[i]) == 0 && hw_bdf_parse(t->info[i].pci, &at[i]) == 0;
    if (good) {
        *n = (size_t)count;
        return at;
    }
    snprintf(t->cuda, sizeof(t->cuda), "%s", hw_error());
    free(at);
    free(t->info);
    t->info = NULL;
    return NULL;
}

static int read_topo_node(struct topo *t, const char *from)
{
    struct hw_scan scan = {.live = !from};
    if (from) {
        int rc = topo_from(&t->node, from);
        if (t->node.n_cuda > 1) /* with one GPU the order is irrelevant */
            snprintf(t->cuda, sizeof(t->cuda), "a snapshot does not contain CUDA's order of GPUs");
        return rc;
    }
    HW_AUTO_CLOSE int root = hw_root_open("/");
    if (root < 0)
        return root;
    HW_AUTO_FREE struct hw_bdf *cuda = ask_cuda(t, &scan.n_cuda);
    scan.cuda = cuda;
    int rc = hw_node_scan(&t->node, root, &scan);
    return rc < 0 ? hw_wrap(rc, "/") : 0;
}

static int draw_svg(const struct topo *t, const char *path)
{
    FILE *f = fopen(path, "we");
    if (!f)
        return hw_fail(-errno, "%s: %s", path, strerror(errno));
    int rc = topo_svg(t, f);
    bool bad = ferror(f);
    if ((fclose(f) != 0 || bad) && rc == 0)
        rc = hw_fail(-EIO, "writing %s failed", path);
    return rc;
}

static int print_plan(struct topo *t, const struct args *a)
{
    int rc = hw_plan_make(&t->plan, &t->node, &a->want);
    t->planned = rc == 0;
    if (rc < 0 && (a->want.gpus || a->want.nics || a->want.map))
        return tool_usage("topo", "%s", hw_error());
    snprintf(t->why, sizeof(t->why), "%s", rc < 0 ? hw_error() : "");
    rc = a->json ? topo_json(t, stdout) : topo_text(t, stdout);
    if (rc == 0 && a->svg)
        rc = draw_svg(t, a->svg);
    if (rc < 0)
        return tool_fail("topo", "%s", hw_error());
    /* the output is complete, but a missing plan is an error */
    return t->planned ? TOOL_OK : tool_fail("topo", "%s", t->why);
}

static int show_machine(const struct args *a)
{
    struct topo t = {.from = a->from};
    int rc = read_topo_node(&t, a->from) < 0 ? tool_fail("topo", "%s", hw_error()) : print_plan(&t, a);
    hw_plan_free(&t.plan);
    hw_node_free(&t.node);
    free(t.info);
    return rc;
}

static int save_snapshot(const char *path)
{
    if (topo_save(path) < 0)
        return tool_fail("topo", "%s", hw_error());
    printf("wrote this machine's PCI devices, NICs and NUMA nodes to %s; to show them, run: hawser topo --from %s\n",
           path, path);
    return TOOL_OK;
}

int cmd_topo(int argc, char **argv)
{
    static const struct opts o = {
        .cmd = "topo",
        .args = "[OPTION...]",
        .about = "Shows GPUs and NICs in the PCI tree, the distances between them, and which NICs serve which GPU.",
        .rows = rows,
        .too_many = "use --from to give a snapshot"};
    struct args a = {0};
    int rc = opts_parse(&o, &a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    if (a.save && (a.from || a.json || a.svg || a.want.gpus || a.want.nics || a.want.map))
        return tool_usage("topo", "--save cannot be combined with other options");
    return a.save ? save_snapshot(a.save) : show_machine(&a);
}
