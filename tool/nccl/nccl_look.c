/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for the network plugin as NCCL 2.28 does (plugin/net.cc, plugin/plugin_open.cc): the same names, order and
 * symbols. */
#include "tool/nccl/nccl_look.h"

#include "transport/netplugin/table/abi.h"

#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LIB_MS    60000 /* ms to load NCCL's library, which has about 300 MB */
#define PLUGIN_MS 10000
#define EXTRA_MS  10000

/* The first NCCL version that supports each table (abi.h). */
static const struct {
    int version, table;
} known[] = {{23003, 12}, {22800, 11}, {22600, 10}, {22400, 9}, {22000, 8}, {21900, 7}};

int nccl_newest_table(int version)
{
    for (size_t i = 0; i < HW_ARRAY_LEN(known) && version; i++)
        if (version >= known[i].version)
            return known[i].table;
    return version ? NCCL_OLDEST : NCCL_NEWEST;
}

/* ---- in a child ------------------------------------------------------------------------------- */

static void keep_path(void *lib, const char *asked, char *out, size_t cap)
{
    struct link_map *map = NULL;
    bool found = dlinfo(lib, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && *map->l_name;
    snprintf(out, cap, "%.*s", (int)cap - 1, found ? map->l_name : asked);
}

static void *open_lib(const char *name, char *path, size_t cap, char *why, size_t why_cap)
{
    void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (lib)
        keep_path(lib, name, path, cap);
    else
        snprintf(why, why_cap, "%s", dlerror());
    return lib;
}

static void try_lib(void *shared)
{
    struct nccl_lib *l = shared;
    void *lib = open_lib(l->asked, l->path, sizeof l->path, l->why, sizeof l->why);
    int (*get)(int *);
    if (!lib)
        return;
    *(void **)&get = dlsym(lib, "ncclGetVersion");
    if (!get || get(&l->version) != 0) {
        l->version = 0;
        snprintf(l->why, sizeof l->why, "the library has no working ncclGetVersion");
    }
}

/* Returns true if the name is a path or the name of a file, so that NCCL tries no other name. */
static bool is_whole_name(const char *name)
{
    size_t n = strlen(name);
    return strchr(name, '/') || (n > 6 && strncmp(name, "lib", 3) == 0 && strcmp(name + n - 3, ".so") == 0);
}

static void try_extra(void *shared)
{
    struct nccl_extra *x = shared;
    char other[sizeof x->asked + 32];
    if (open_lib(x->asked, x->path, sizeof x->path, x->why, sizeof x->why) || is_whole_name(x->asked))
        return;
    snprintf(other, sizeof other, "libnccl-tuner-%s.so", x->asked); /* only a tuner's name may be short */
    (void)open_lib(other, x->path, sizeof x->path, x->why, sizeof x->why);
}

__attribute__((format(printf, 5, 6))) static void say(ncclDebugLogLevel level, unsigned long flags, const char *file,
                                                      int line, const char *fmt, ...)
{
    va_list ap;
    (void)flags;
    (void)file;
    (void)line;
    if (level > NCCL_LOG_INFO)
        return;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    fflush(stderr);
}

static ncclResult_t ignore_nccl_profiler(void **handle, int type, void *phandle, int64_t id, void *data)
{
    (void)handle;
    (void)type;
    (void)phandle;
    (void)id;
    (void)data;
    return ncclSuccess;
}

static ncclResult_t start_net(int version, void *table, void **ctx)
{
    static ncclNetCommConfig_v11_t config = {.trafficClass = -1};
    switch (version) {
    case 12:
        return ((ncclNet_v12_t *)table)->init(ctx, 1, &config, say, ignore_nccl_profiler);
    case 11:
        return ((ncclNet_v11_t *)table)->init(ctx, 1, &config, say, ignore_nccl_profiler);
    case 10:
        return ((ncclNet_v10_t *)table)->init(say, ignore_nccl_profiler);
    default: /* v6 to v9 have the same beginning */
        return ((ncclNet_v6_t *)table)->init(say);
    }
}

/* Copies the properties of a device. The offset of the speed depends on the version; name, path, guid and ptrSupport
 * have the same offsets in all versions. */
static void keep_device(int version, const void *props, struct nccl_device *d)
{
    const ncclNetProperties_v6_t *p = props;
    snprintf(d->name, sizeof d->name, "%s", p->name ? p->name : "");
    snprintf(d->pci, sizeof d->pci, "%s", p->pciPath ? p->pciPath : "");
    d->ptr = p->ptrSupport;
    d->speed = version >= 9   ? ((const ncclNetProperties_v9_t *)props)->speed
               : version == 8 ? ((const ncclNetProperties_v8_t *)props)->speed
                              : p->speed;
}

static void try_table(struct nccl_plugin *p, void *table)
{
    const ncclNet_v6_t *t = table; /* name, devices and getProperties have the same offsets in all versions */
    void *ctx = NULL;
    union {
        ncclNetProperties_v6_t v6;
        ncclNetProperties_v12_t v12;
        uint8_t room[512];
    } props;
    snprintf(p->name, sizeof p->name, "%s", t->name ? t->name : "");
    p->step = NCCL_INITIALISING;
    if ((p->rc = start_net(p->table, table, &ctx)) != 0)
        return;
    p->step = NCCL_COUNTING;
    if ((p->rc = t->devices(&p->n_devices)) != 0)
        return;
    p->step = NCCL_ASKING;
    for (int i = 0; i < p->n_devices && i < NCCL_DEVICES; i++) {
        memset(&props, 0, sizeof props);
        if ((p->rc = t->getProperties(i, &props.v6)) != 0)
            return;
        keep_device(p->table, &props, &p->device[i]);
    }
    p->step = NCCL_FINALISING;
    if (p->table >= 11)
        p->rc = ((ncclNet_v11_t *)table)->finalize(ctx);
}

static void try_plugin(void *shared)
{
    struct nccl_plugin *p = shared;
    char other[sizeof p->asked + 32], symbol[64];
    void *table = NULL;
    p->step = NCCL_LOADING;
    void *lib = open_lib(p->asked, p->path, sizeof p->path, p->why, sizeof p->why);
    if (!lib && !is_whole_name(p->asked)) {
        snprintf(other, sizeof other, "libnccl-net-%s.so", p->asked);
        lib = open_lib(other, p->path, sizeof p->path, p->why, sizeof p->why);
    }
    if (!lib)
        return;
    p->step = NCCL_TABLES;
    for (int v = 2; v <= NCCL_NEWEST; v++) {
        snprintf(symbol, sizeof symbol, "ncclTunerPlugin_v%d", v);
        p->tuners |= dlsym(lib, symbol) ? 1u << v : 0;
        snprintf(symbol, sizeof symbol, NCCL_TABLE_NAME "%d", v);
        void *here = dlsym(lib, symbol);
        p->tables |= here ? 1u << v : 0;
        if (here && v >= NCCL_OLDEST && v <= p->newest) {
            table = here;
            p->table = v;
        }
    }
    if (table)
        try_table(p, table);
    if (!table || p->rc == 0)
        p->step = NCCL_DONE;
}

/* ---- in the parent ---------------------------------------------------------------------------- */

bool nccl_net_allows(const char *name)
{
    const char *net = getenv("NCCL_NET");
    return !net || !*net || strcasecmp(net, name) == 0;
}

bool nccl_usable(const struct nccl_plugin *p)
{
    return p->child.rc == 0 && p->table && p->rc == 0 && p->n_devices > 0 && nccl_net_allows(p->name);
}

static bool is_hawser_plugin(const struct nccl_plugin *p)
{
    char real[NCCL_PATH];
    const char *base = *p->path && realpath(p->path, real) ? strrchr(real, '/') : NULL;
    return strcmp(p->asked, NCCL_OUR_NAME) == 0 || (base && strcmp(base + 1, NCCL_PLUGIN_FILE) == 0) ||
           strcmp(p->name, NCCL_OUR_NAME) == 0;
}

static int add_net_plugin(struct nccl_look *l, const char *asked, size_t len, bool listed)
{
    struct nccl_plugin *p = l->n < HW_ARRAY_LEN(l->plugin) ? nccl_shared(sizeof *p) : NULL;
    if (!p)
        return hw_no_memory("the results for a plugin");
    l->plugin[l->n++] = p;
    snprintf(p->asked, sizeof p->asked, "%.*s", (int)HW_MIN(len, sizeof p->asked - 1), asked);
    p->listed = listed;
    p->newest = l->newest;
    nccl_run(&p->child, try_plugin, p, PLUGIN_MS);
    p->ours = is_hawser_plugin(p);
    if (listed && l->chosen < 0 && nccl_usable(p))
        l->chosen = (int)l->n - 1;
    return 0;
}

struct nccl_extra *nccl_find(const char *name)
{
    struct nccl_extra *x = nccl_shared(sizeof *x);
    if (x) {
        snprintf(x->asked, sizeof x->asked, "%s", name);
        nccl_run(&x->child, try_extra, x, EXTRA_MS);
    }
    return x;
}

static int try_net_plugins(struct nccl_look *l)
{
    const char *list = nccl_net_plugins();
    bool ours = false;
    int rc = 0;
    l->asked = list;
    l->none = list && strcmp(list, "none") == 0;
    if (!list)
        rc = add_net_plugin(l, NCCL_ANY_FILE, strlen(NCCL_ANY_FILE), true);
    for (const char *p = list; p && !l->none && *p && rc == 0 && l->n < NCCL_LIST;) {
        size_t n = strcspn(p, ",");
        if (n)
            rc = add_net_plugin(l, p, n, true);
        p += n + (p[n] == ',');
    }
    for (size_t i = 0; i < l->n; i++)
        ours = ours || l->plugin[i]->ours;
    /* Also try our plugin if no other entry is ours. Use its path if known, so that no lookup by name is needed. */
    char path[NCCL_PATH + 64];
    snprintf(path, sizeof path, "%s/" NCCL_PLUGIN_FILE, l->dir);
    const char *name = *l->dir ? path : NCCL_OUR_NAME;
    return ours || rc < 0 ? rc : add_net_plugin(l, name, strlen(name), false);
}

int nccl_look(struct nccl_look *l, const char *nccl)
{
    const char *tuner = getenv("NCCL_TUNER_PLUGIN");
    nccl_conf_read();
    *l = (struct nccl_look){.chosen = -1, .lib = nccl_shared(sizeof *l->lib)};
    if (!l->lib)
        return hw_no_memory("the results for NCCL");
    snprintf(l->lib->asked, sizeof l->lib->asked, "%s", nccl ? nccl : NCCL_LIBRARY);
    nccl_run(&l->lib->child, try_lib, l->lib, LIB_MS);
    l->newest = nccl_newest_table(l->lib->version);
    if (nccl_plugin_dir(l->dir, sizeof l->dir) < 0)
        l->dir[0] = 0;
    int rc = try_net_plugins(l);
    l->link = nccl_find(NCCL_ANY_FILE);
    l->tuner = nccl_find(tuner && *tuner ? tuner : "libnccl-tuner.so");
    l->env = nccl_find("libnccl-env.so");
    if (rc == 0 && !(l->link && l->tuner && l->env))
        rc = hw_no_memory("the results for NCCL's libraries");
    return rc;
}

void nccl_look_free(struct nccl_look *l)
{
    nccl_unshare(l->lib, sizeof *l->lib);
    for (size_t i = 0; i < l->n; i++)
        nccl_unshare(l->plugin[i], sizeof *l->plugin[i]);
    nccl_unshare(l->link, sizeof *l->link);
    nccl_unshare(l->tuner, sizeof *l->tuner);
    nccl_unshare(l->env, sizeof *l->env);
    *l = (struct nccl_look){0};
}
