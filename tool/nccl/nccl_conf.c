/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/nccl/nccl_conf.h"

#include "base/size.h"
#include "nccl/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FROM_FILES 64 /* maximum variables whose origin is recorded */

static struct {
    char name[64];
    char file[256];
} origin[FROM_FILES];
static size_t n_origins;

/* ---- configuration files ---------------------------------------------------------------------- */

/* For each line NAME=VALUE whose variable is not set, sets the variable and records the file as its origin. Like NCCL's
 * misc/param.cc, keeps quotes and spaces, and skips all other lines. */
static void read_nccl_conf_file(const char *path)
{
    FILE *f = fopen(path, "re");
    char *line = NULL;
    size_t cap = 0;
    for (ssize_t n; f && (n = getline(&line, &cap, f)) > 0;) {
        if (line[n - 1] == '\n')
            line[n - 1] = 0;
        char *eq = strchr(line, '=');
        if (!eq || eq == line || line[0] == '#')
            continue;
        *eq = 0;
        if (getenv(line) || setenv(line, eq + 1, 0) < 0 || n_origins == FROM_FILES)
            continue;
        snprintf(origin[n_origins].name, sizeof origin[0].name, "%s", line);
        snprintf(origin[n_origins++].file, sizeof origin[0].file, "%s", path);
    }
    free(line);
    if (f)
        fclose(f);
}

void nccl_conf_read(void)
{
    static bool done;
    const char *named = getenv("NCCL_CONF_FILE"), *home = getenv("HOME");
    char path[NCCL_PATH];
    if (done)
        return;
    done = true;
    if (named && *named)
        read_nccl_conf_file(named);
    else if (home) {
        snprintf(path, sizeof path, "%s/.nccl.conf", home);
        read_nccl_conf_file(path);
    }
    read_nccl_conf_file("/etc/nccl.conf");
}

const char *nccl_conf_where(const char *name)
{
    for (size_t i = 0; i < n_origins; i++)
        if (strcmp(origin[i].name, name) == 0)
            return origin[i].file;
    return "the environment";
}

const char *nccl_net_plugins(void)
{
    const char *list = getenv("NCCL_NET_PLUGIN");
    return list && *list ? list : NULL;
}

/* ---- our plugin ------------------------------------------------------------------------------- */

#define PRIVATE_DIR "hawser/nccl"

int nccl_plugin_dir(char *out, size_t cap)
{
    /* Look for the plugin relative to this program, in the build folder or in the usual library folders, and then in
     * HW_LIBDIR, meson's folder for libraries. The folder hawser/nccl has the plugin under both names that NCCL tries.
     */
    static const char *const near[] = {"nccl", "../lib/" PRIVATE_DIR, "../lib/x86_64-linux-gnu/" PRIVATE_DIR,
                                       "../lib/aarch64-linux-gnu/" PRIVATE_DIR, "../lib64/" PRIVATE_DIR};
    char exe[NCCL_PATH], try[NCCL_PATH + 64];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    char *slash = strrchr(exe, '/');
    if (slash)
        *slash = 0;
    for (size_t i = 0; i <= HW_ARRAY_LEN(near); i++) {
        char real[NCCL_PATH];
        if (i < HW_ARRAY_LEN(near))
            snprintf(try, sizeof try, "%s/%s", exe, near[i]);
        else
            snprintf(try, sizeof try, "%s", HW_LIBDIR "/" PRIVATE_DIR);
        if (!realpath(try, real) || strlen(real) >= cap)
            continue;
        snprintf(try, sizeof try, "%s/%s", real, NCCL_PLUGIN_FILE);
        if (access(try, R_OK) == 0) {
            snprintf(out, cap, "%s", real);
            return 0;
        }
    }
    return hw_fail(-ENOENT,
                   "%s was not found near %.120s or in " HW_LIBDIR "/" PRIVATE_DIR
                   ": install hawser-nccl, or the Python wheel",
                   NCCL_PLUGIN_FILE, exe);
}

/* ---- conflicts -------------------------------------------------------------------------------- */

static struct nccl_conflict *add_nccl_conflict(struct nccl_conflict *out, size_t *n, const char *name,
                                               enum nccl_weight w)
{
    struct nccl_conflict *c = &out[*n];
    *n += *n + 1 < NCCL_CONFLICTS;
    *c = (struct nccl_conflict){.name = name, .value = getenv(name), .weight = w};
    return c;
}

#define TEXT(c, ...) snprintf((c)->text, sizeof(c)->text, __VA_ARGS__)
#define MEND(c, ...) snprintf((c)->mend, sizeof(c)->mend, __VA_ARGS__)

/* Returns true if the comma-separated list contains our plugin, by name or by path. */
static bool lists_ours(const char *list)
{
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");
        const char *base = p;
        for (const char *c = p; c < p + n; c++)
            base = *c == '/' ? c + 1 : base;
        size_t len = (size_t)(p + n - base);
        if ((len == strlen(NCCL_OUR_NAME) && strncmp(base, NCCL_OUR_NAME, len) == 0) ||
            (len == strlen(NCCL_PLUGIN_FILE) && strncmp(base, NCCL_PLUGIN_FILE, len) == 0))
            return true;
        p += n + (p[n] == ',');
    }
    return false;
}

static void add_choice_conflicts(struct nccl_conflict *out, size_t *n)
{
    const char *net = getenv("NCCL_NET"), *plugin = nccl_net_plugins(), *tuner = getenv("NCCL_TUNER_PLUGIN");
    if (net && *net && strcasecmp(net, NCCL_OUR_NAME) != 0) {
        struct nccl_conflict *c = add_nccl_conflict(out, n, "NCCL_NET", NCCL_WRONG);
        TEXT(c, "NCCL uses only the network of this name");
        MEND(c, "export NCCL_NET=" NCCL_OUR_NAME);
    }
    if (plugin && !lists_ours(plugin)) {
        struct nccl_conflict *c = add_nccl_conflict(out, n, "NCCL_NET_PLUGIN", NCCL_WRONG);
        TEXT(c, "%s", strcmp(plugin, "none") == 0 ? "NCCL loads no plugin" : "hawser is not in this list of plugins");
        MEND(c, "export NCCL_NET_PLUGIN=" NCCL_OUR_NAME);
    }
    if (tuner && *tuner && !lists_ours(tuner)) {
        struct nccl_conflict *c = add_nccl_conflict(out, n, "NCCL_TUNER_PLUGIN", NCCL_CAUTION);
        TEXT(c, "NCCL does not use hawser's tuner, and may use protocols that are slow over TCP");
        MEND(c, "unset NCCL_TUNER_PLUGIN");
    }
    static const char *const forced[] = {"NCCL_ALGO", "NCCL_PROTO"};
    for (size_t i = 0; i < HW_ARRAY_LEN(forced); i++)
        if (getenv(forced[i])) {
            struct nccl_conflict *c = add_nccl_conflict(out, n, forced[i], NCCL_CAUTION);
            TEXT(c, "limits the choices of hawser's tuner");
            MEND(c, "unset %s", forced[i]);
        }
    static const char *const others[] = {"NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_SOCKET_FAMILY", "NCCL_SOCKET_NTHREADS",
                                         "NCCL_NSOCKS_PERTHREAD"};
    for (size_t i = 0; i < HW_ARRAY_LEN(others); i++)
        if (getenv(others[i]))
            TEXT(add_nccl_conflict(out, n, others[i], NCCL_NOTE), "applies to NCCL's own networks only, not to hawser");
}

/* Adds HAWSER_NCCL_TUNE if it disables tuning. Otherwise adds the user's variables that override the plugin's
 * parameters, and unsuitable values of NCCL_P2P_NET_CHUNKSIZE and NCCL_BUFFSIZE. */
static void add_param_conflicts(struct nccl_conflict *out, size_t *n)
{
    if (!hn_tune(NULL)) {
        struct nccl_conflict *c = add_nccl_conflict(out, n, "HAWSER_NCCL_TUNE", NCCL_CAUTION);
        TEXT(c, "the plugin sets none of NCCL's parameters and its tuner does nothing; this variable must be the same "
                "on every rank");
        MEND(c, "unset HAWSER_NCCL_TUNE");
        return;
    }
    for (const struct hn_param *p = hn_params; p->name; p++) {
        const char *user = hn_param_user(p);
        const char *is = user ? getenv(user) : NULL;
        if (!is || strcmp(is, p->value) == 0)
            continue;
        struct nccl_conflict *c = add_nccl_conflict(out, n, user, NCCL_CAUTION);
        TEXT(c, "the plugin does not set %s to %s, because you have set %s, which must be the same on every rank",
             p->name, p->value, user);
        MEND(c, "unset %s", user);
    }
    const char *chunk = getenv("NCCL_P2P_NET_CHUNKSIZE"), *buffer = getenv("NCCL_BUFFSIZE");
    uint64_t v = 0, b = 0;
    if (chunk && hw_parse_u64(chunk, 0, UINT64_MAX, &v) == 0 && v >= 2097152) {
        struct nccl_conflict *c = add_nccl_conflict(out, n, "NCCL_P2P_NET_CHUNKSIZE", NCCL_CAUTION);
        TEXT(c,
             "NCCL's shared buffer pool may need 64 channels * 16 steps * this value, which overflows its 31-bit size");
        MEND(c, "export NCCL_P2P_NET_CHUNKSIZE=1048576");
    }
    if (buffer && hw_parse_u64(buffer, 0, UINT64_MAX, &b) == 0 && b < 8388608 && (!chunk || v > b / 8)) {
        struct nccl_conflict *c = add_nccl_conflict(out, n, "NCCL_BUFFSIZE", NCCL_CAUTION);
        TEXT(c, "NCCL limits NCCL_P2P_NET_CHUNKSIZE to an eighth of this value, %llu bytes", (unsigned long long)b / 8);
        MEND(c, "unset NCCL_BUFFSIZE");
    }
}

size_t nccl_conflicts(struct nccl_conflict out[NCCL_CONFLICTS])
{
    size_t n = 0;
    add_choice_conflicts(out, &n);
    add_param_conflicts(out, &n);
    return n;
}
