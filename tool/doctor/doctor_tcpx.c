/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Doctor's checks of GPUDirect-TCPX: Google's plugin for NCCL, the receive datapath manager (RxDM, dp-manager) that the
 * plugin uses, and the most important variables (google/nccl-plugin-gpudirecttcpx, v3.1.9).
 */
#include "net/sysfs.h"
#include "tool/doctor/doctor.h"
#include "tool/doctor/elfsym.h"

#include <elf.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define G            "NCCL_GPUDIRECTTCPX_"
#define PREFIX_VAR   G "UNIX_CLIENT_PREFIX"
#define SYMBOL       "ncclNetPlugin_v"
#define MAX_PLUGINS  16
#define MAX_FILE     (128u << 20)
#define OLDEST_TABLE 6 /* NCCL 2.28 loads v6 to v11, and NCCL 2.30.3 and later load v6 to v12 */

/* Folders in which vendors' images install the plugin, and folders that the dynamic loader searches. */
static const char *const tcpx_dirs[] = {"/usr/local/tcpx/lib64", "/var/lib/tcpx/lib64", "/usr/local/nvidia/lib64"};
static const char *const loader_dirs[] = {"/lib/x86_64-linux-gnu",
                                          "/usr/lib/x86_64-linux-gnu",
                                          "/lib/aarch64-linux-gnu",
                                          "/usr/lib/aarch64-linux-gnu",
                                          "/lib64",
                                          "/usr/lib64",
                                          "/lib",
                                          "/usr/lib",
                                          "/usr/local/lib"};

struct plugin {
    char path[256];
    bool on_path; /* true if the dynamic loader would find the plugin, or NCCL_NET_PLUGIN lists its path */
    dev_t dev;
    ino_t ino;
};

struct search {
    const struct dr_machine *m;
    struct plugin p[MAX_PLUGINS];
    size_t n;
};

bool dr_tcpx_meant(const struct dr_machine *m)
{
    for (const char *const *e = m->env; e && *e; e++)
        if (strncmp(*e, G, strlen(G)) == 0)
            return true;
    return hw_root_has(m->root, "run/tcpx");
}

/* Returns true if file has the name of a plugin and NCCL_NET_PLUGIN selects the plugin, is empty or is not set. */
static bool is_wanted_plugin(const struct dr_machine *m, const char *file)
{
    const char *plugin = dr_env(m, "NCCL_NET_PLUGIN");
    char name[128];
    if (fnmatch("libnccl-net.so", file, 0) != 0 && fnmatch("libnccl-net-*.so", file, 0) != 0)
        return false;
    if (!plugin || !*plugin)
        return true;
    for (const char *p = plugin; *p;) {
        size_t n = strcspn(p, ",");
        snprintf(name, sizeof name, "libnccl-net-%.*s.so", (int)n, p);
        if (strcmp(file, name) == 0 || (strlen(file) == n && strncmp(file, p, n) == 0))
            return true;
        p += n + (p[n] == ',');
    }
    return false;
}

/* Adds the file at an absolute path. Ignores a missing file, and any file after MAX_PLUGINS. For a file that was
 * already found, only updates on_path. The same file may have two paths: /usr/local/tcpx is often a link to
 * /var/lib/tcpx. */
static void add_plugin_file(struct search *s, const char *path, bool on_path)
{
    struct stat st;
    int fd = s->n < MAX_PLUGINS ? hw_root_fd(s->m->root, O_PATH, "%s", path + 1) : -1;
    bool there = fd >= 0 && fstat(fd, &st) == 0;
    hw_close(&fd);
    size_t k = 0;
    while (there && k < s->n && (s->p[k].dev != st.st_dev || s->p[k].ino != st.st_ino))
        k++;
    if (there && k < s->n)
        s->p[k].on_path |= on_path;
    if (!there || k < s->n)
        return;
    struct plugin *p = &s->p[s->n++];
    *p = (struct plugin){.on_path = on_path, .dev = st.st_dev, .ino = st.st_ino};
    snprintf(p->path, sizeof p->path, "%s", path);
}

static void look_in(struct search *s, const char *dir, bool on_path)
{
    struct hw_names l = {0};
    char path[sizeof s->p[0].path];
    if (*dir == '/' && hw_root_list(s->m->root, &l, "%s", dir + 1) == 0)
        for (size_t i = 0; i < l.n; i++)
            if (is_wanted_plugin(s->m, l.name[i]) &&
                snprintf(path, sizeof path, "%s/%s", dir, l.name[i]) < (int)sizeof path)
                add_plugin_file(s, path, on_path);
    hw_names_free(&l);
}

/* Adds the files whose absolute paths NCCL_NET_PLUGIN lists. dlopen() opens a path without a search. */
static void add_plugin_paths(struct search *s)
{
    const char *plugin = dr_env(s->m, "NCCL_NET_PLUGIN");
    char path[sizeof s->p[0].path];
    for (const char *p = plugin ? plugin : ""; *p;) {
        size_t n = strcspn(p, ",");
        if (*p == '/' && n < sizeof path) {
            snprintf(path, sizeof path, "%.*s", (int)n, p);
            add_plugin_file(s, path, true);
        }
        p += n + (p[n] == ',');
    }
}

static void find_tcpx_plugins(const struct dr_machine *m, struct search *s)
{
    const char *path = dr_env(m, "LD_LIBRARY_PATH");
    *s = (struct search){.m = m};
    add_plugin_paths(s);
    while (path && *path) {
        char dir[256];
        size_t n = strcspn(path, ":");
        snprintf(dir, sizeof dir, "%.*s", (int)n, path);
        look_in(s, dir, true);
        path += n + (path[n] == ':');
    }
    for (size_t i = 0; i < HW_ARRAY_LEN(loader_dirs); i++)
        look_in(s, loader_dirs[i], true);
    for (size_t i = 0; i < HW_ARRAY_LEN(tcpx_dirs); i++)
        look_in(s, tcpx_dirs[i], false);
}

/* Returns a file's bytes, which the caller frees, or NULL with hw_error(). *len receives the number of bytes. */
static uint8_t *load_plugin_file(int root, const char *path, size_t *len)
{
    int fd = hw_root_fd(root, O_RDONLY | O_NONBLOCK, "%s", path + 1);
    struct stat st;
    uint8_t *b = NULL;
    if (fd < 0)
        return NULL;
    *len = 0;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > (off_t)MAX_FILE)
        hw_fail(-ENOEXEC, "the file is empty, not a regular file, or larger than 128 MiB");
    else if (!(b = malloc((size_t)st.st_size)))
        hw_no_memory("%lld bytes", (long long)st.st_size);
    for (ssize_t n = 1; b && *len < (size_t)st.st_size && n > 0; *len += (size_t)HW_MAX(n, 0))
        n = read(fd, b + *len, (size_t)st.st_size - *len);
    hw_close(&fd);
    return b;
}

struct versions {
    char text[200];
    unsigned newest;
};

static void add_plugin_version(void *arg, const char *name)
{
    struct versions *v = arg;
    char *end;
    unsigned long n = strtoul(name + strlen(SYMBOL), &end, 10);
    if (!n || *end || n > 999)
        return;
    size_t at = strlen(v->text);
    snprintf(v->text + at, sizeof v->text - at, "%s%.24s", at ? ", " : "", name);
    v->newest = HW_MAX(v->newest, (unsigned)n);
}

static void check_plugin_file(struct dr_report *d, const struct plugin *p)
{
    struct versions v = {0};
    size_t len;
    uint16_t machine = EM_NONE;
    uint8_t *b = load_plugin_file(d->m->root, p->path, &len);
    int rc = b ? elf_symbols(b, len, SYMBOL, &machine, add_plugin_version, &v) : -ENOEXEC;
    free(b);
    uint16_t ours = strcmp(d->m->arch, "x86_64") == 0    ? EM_X86_64
                    : strcmp(d->m->arch, "aarch64") == 0 ? EM_AARCH64
                                                         : EM_NONE;
    if (rc < 0)
        dr_say(d, DR_FAIL, NULL, "%s: %s", p->path, hw_error());
    else if (ours && machine != ours)
        dr_say(d, DR_FAIL, NULL, "%s is built for another processor (ELF machine %u)", p->path, machine);
    else if (!v.newest)
        dr_say(d, DR_FAIL, NULL, "%s exports no ncclNetPlugin_vN, so it is not a plugin", p->path);
    else if (v.newest < OLDEST_TABLE) {
        dr_say(d, DR_WARN, NULL, "%s exports %s: too old for NCCL 2.28, which loads v6 to v11", p->path, v.text);
        dr_mend(d, "install a plugin that exports ncclNetPlugin_v6 or later");
    } else
        dr_say(d, DR_PASS, NULL, "%s exports %s", p->path, v.text);
    if (d->r && d->r[d->n - 1].outcome == DR_FAIL)
        dr_mend(d, "readelf --dyn-syms -W %s | grep ncclNet   # then reinstall the plugin", p->path);
}

void dr_tcpx_plugin(struct dr_report *d)
{
    const char *asked = dr_env(d->m, "NCCL_NET_PLUGIN");
    struct search s;
    if (asked && strcmp(asked, "none") == 0) {
        dr_say(d, DR_SKIP, NULL, "NCCL_NET_PLUGIN=none: NCCL loads no plugin");
        return;
    }
    find_tcpx_plugins(d->m, &s);
    for (size_t i = 0; i < s.n; i++)
        check_plugin_file(d, &s.p[i]);
    if (s.n > 0)
        return;
    if (asked && strchr(asked, '/') && !strchr(asked, ',')) {
        dr_say(d, DR_FAIL, NULL, "NCCL_NET_PLUGIN=%.160s is not %s", asked,
               *asked == '/' ? "an existing file"
                             : "an absolute path, so NCCL looks below the folder in which it runs");
        dr_mend(d, "export NCCL_NET_PLUGIN=/DIR/FILE   # the plugin's path");
    } else if (asked && *asked) {
        dr_say(d, DR_FAIL, NULL, "NCCL_NET_PLUGIN=%.60s, but no plugin of this name is found", asked);
        dr_mend(d, "export LD_LIBRARY_PATH=DIR:$LD_LIBRARY_PATH   # DIR is the plugin's folder");
    } else if (dr_tcpx_meant(d->m)) {
        dr_say(d, DR_FAIL, NULL, "TCPX is set up here, but no libnccl-net*.so is found");
        dr_mend(
            d, "ls /usr/local/tcpx/lib64 /var/lib/tcpx/lib64   # TCPX's installer (a container) puts the plugin there");
    } else
        dr_say(d, DR_SKIP, NULL, "no libnccl-net*.so, and no variable selects one");
}

void dr_tcpx_path(struct dr_report *d)
{
    struct search s;
    find_tcpx_plugins(d->m, &s);
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i].on_path) {
            dr_say(d, DR_PASS, NULL, "%s", s.p[i].path);
            continue;
        }
        const char *slash = strrchr(s.p[i].path, '/');
        dr_say(d, DR_WARN, NULL,
               "the folder of %s is not in LD_LIBRARY_PATH, so NCCL finds the plugin by name only if /etc/ld.so.conf "
               "lists "
               "that folder",
               s.p[i].path);
        dr_mend(d, "export LD_LIBRARY_PATH=%.*s:$LD_LIBRARY_PATH", (int)(slash - s.p[i].path), s.p[i].path);
    }
    if (s.n == 0)
        dr_say(d, DR_SKIP, NULL, "no plugin found");
}

static bool is_socket(const struct dr_machine *m, const char *dir, const char *name)
{
    struct stat st;
    int fd = hw_root_fd(m->root, O_PATH, "%s/%s", dir + (*dir == '/'), name);
    bool is = fd >= 0 && fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
    hw_close(&fd);
    return is;
}

/* Checks RxDM's sockets: rx_rule_manager, which receives the plugin's rules, and for each GPU get_gpu_fd_<bdf>, which
 * provides the GPU's memory. */
void dr_tcpx_manager(struct dr_report *d)
{
    struct hw_names l = {0};
    size_t gpus = 0;
    const char *set = dr_env(d->m, PREFIX_VAR);
    const char *dir = set && is_socket(d->m, set, "rx_rule_manager")    ? set
                      : is_socket(d->m, "/run/tcpx", "rx_rule_manager") ? "/run/tcpx"
                                                                        : "/tmp";
    bool rules = is_socket(d->m, dir, "rx_rule_manager");
    if (rules && hw_root_list(d->m->root, &l, "%s", dir + (*dir == '/')) == 0)
        for (size_t i = 0; i < l.n; i++)
            gpus += strncmp(l.name[i], "get_gpu_fd_", 11) == 0 && is_socket(d->m, dir, l.name[i]);
    hw_names_free(&l);
    if (rules && gpus > 0)
        dr_say(d, DR_PASS, NULL, "%s has the sockets of rx_rule_manager and of %zu GPU%s", dir, gpus, hw_plural(gpus));
    else if (rules)
        dr_say(d, DR_FAIL, NULL,
               "%s/rx_rule_manager exists, but there is no get_gpu_fd_*: RxDM found no GPU, or was assigned none", dir);
    else if (dr_tcpx_meant(d->m))
        dr_say(d, DR_FAIL, NULL, "TCPX is set up here, but no rx_rule_manager socket is found");
    else
        dr_say(d, DR_SKIP, NULL, "TCPX is not set up here");
    if (d->r && d->r[d->n - 1].outcome == DR_FAIL)
        dr_mend(d, "docker ps | grep -i rxdm; docker logs CONTAINER   # start RxDM, and share /run/tcpx with the job");
}

void dr_tcpx_prefix(struct dr_report *d)
{
    const char *set = dr_env(d->m, PREFIX_VAR);
    const char *prefix = set && *set ? set : "/tmp";
    const char *real = is_socket(d->m, "/run/tcpx", "rx_rule_manager") ? "/run/tcpx"
                       : is_socket(d->m, "/tmp", "rx_rule_manager")    ? "/tmp"
                                                                       : NULL;
    if (is_socket(d->m, prefix, "rx_rule_manager"))
        dr_say(d, DR_PASS, NULL, "the plugin will find %.200s/rx_rule_manager", prefix);
    else if (real) {
        dr_say(d, DR_FAIL, NULL, "the plugin looks for RxDM's sockets in %.200s%s, but they are in %s", prefix,
               set ? "" : " (" PREFIX_VAR " is not set)", real);
        dr_mend(d, "export " PREFIX_VAR "=%s", real);
    } else
        dr_say(d, DR_SKIP, NULL, "no socket of RxDM was found");
}

void dr_tcpx_chunk(struct dr_report *d)
{
    const char *v = dr_env(d->m, "NCCL_DYNAMIC_CHUNK_SIZE");
    uint64_t n = 0;
    if (!v && !dr_tcpx_meant(d->m)) {
        dr_say(d, DR_SKIP, NULL, "TCPX is not set up here");
        return;
    }
    if (v && hw_text_u64(v, &n) < 0)
        dr_say(d, DR_FAIL, NULL, "'%.40s' is not a number", v);
    else if (n == 0)
        dr_say(d, DR_FAIL, NULL, "%s", v ? "0" : "not set, so the value is 0");
    else if (n != 524288)
        dr_say(d, DR_WARN, NULL, "%llu, but only 524288 is known to work", (unsigned long long)n);
    else
        dr_say(d, DR_PASS, NULL, "524288");
    if (d->r && d->r[d->n - 1].outcome != DR_PASS)
        dr_mend(d, "export NCCL_DYNAMIC_CHUNK_SIZE=524288");
}

/* Checks that each NIC that a variable lists exists. The list has the form "eth1,eth2", or with bindings
 * "eth1:8-21,112-125;eth2:0-7". */
static void names_in(struct dr_report *d, const char *var, bool bindings)
{
    const char *v = dr_env(d->m, var);
    char bad[128] = "";
    size_t n = 0;
    for (const char *p = v; p && *p;) {
        size_t entry = strcspn(p, bindings ? ";" : ","), len = HW_MIN(entry, strcspn(p, ":"));
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)HW_MIN(len, sizeof name - 1), p);
        if (len && (strchr(name, '/') || !hw_root_has(d->m->root, "sys/class/net/%s", name))) {
            size_t at = strlen(bad);
            snprintf(bad + at, sizeof bad - at, "%s%s", at ? ", " : "", name);
        }
        n += len > 0;
        p += entry + (p[entry] != 0);
    }
    if (!v)
        return;
    if (*bad) {
        dr_say(d, DR_FAIL, NULL, "%s lists %s, but there is no such NIC", var, bad);
        dr_mend(d, "ls /sys/class/net; export %s=...", var);
    } else if (n == 0) {
        dr_say(d, DR_WARN, NULL, "%s is empty", var);
        dr_mend(d, "unset %s", var);
    } else
        dr_say(d, DR_PASS, NULL, "%s=%.160s", var, v);
}

void dr_tcpx_names(struct dr_report *d)
{
    size_t before = d->n;
    names_in(d, G "SOCKET_IFNAME", false);
    names_in(d, G "CTRL_DEV", false);
    names_in(d, G "TX_BINDINGS", true);
    names_in(d, G "RX_BINDINGS", true);
    if (d->n == before)
        dr_say(d, DR_SKIP, NULL, "none of TCPX's NIC variables is set");
}

void dr_tcpx_sync(struct dr_report *d)
{
    const char *v = dr_env(d->m, G "RECV_SYNC");
    if (!v)
        dr_say(d, DR_SKIP, NULL, "not set");
    else if (strcmp(v, "0") == 0)
        dr_say(d, DR_PASS, NULL, "0");
    else {
        dr_say(d, DR_WARN, NULL, "set to '%.40s': the value must be the same on every node", v);
        dr_mend(d, "unset " G "RECV_SYNC");
    }
}

#define BUSY 1000 /* packets within moment_ms that indicate a running transfer */

void dr_tcpx_packets(struct dr_report *d)
{
    const struct dr_machine *m = d->m;
    size_t before = d->n;
    for (int i = 0; i < m->n_nics; i++) {
        const struct dr_nic *n = &m->nic[i];
        if (n->devmem_rc < 0)
            continue;
        unsigned long long was = n->devmem_pkts[0], is = n->devmem_pkts[1];
        if (is > was)
            dr_say(d, DR_PASS, n->name, "rx_devmem_pkts rose by %llu within %u ms", is - was, m->moment_ms);
        else if (is > 0) {
            unsigned long long all = n->rx_pkts[1] - n->rx_pkts[0];
            if (n->rx_pkts[1] > n->rx_pkts[0] && all >= BUSY)
                dr_say(
                    d, DR_WARN, n->name,
                    "rx_devmem_pkts stayed at %llu while %llu packets arrived within %u ms: these packets are ordinary "
                    "data (rx no cmsg), or belong to other programs",
                    is, all, m->moment_ms);
            else
                dr_say(d, DR_WARN, n->name,
                       "rx_devmem_pkts is %llu and did not rise within %u ms: if a transfer runs now, this NIC does "
                       "not place its data "
                       "in GPU memory",
                       is, m->moment_ms);
            dr_mend(d,
                    "hawser doctor --only tcpx   # rx_devmem_pkts must rise during a transfer from another machine; if "
                    "not, check the flow rules: ethtool -n %s",
                    n->name);
        } else {
            dr_say(d, DR_WARN, n->name, "0: this NIC has placed no packet in GPU memory so far");
            dr_mend(d, "ethtool -S %s | grep rx_devmem_pkts   # repeat during a transfer from another machine",
                    n->name);
        }
    }
    if (d->n == before)
        dr_say(d, DR_SKIP, NULL, "no NIC of this machine has the statistic rx_devmem_pkts");
}
