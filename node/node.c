/* SPDX-License-Identifier: Apache-2.0 */
#include "node/node.h"
#include "net/nic.h"
#include "net/sysfs.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NOTES  32
#define MAX_ADDRS  4096
#define ROUTES_MAX (1 << 20) /* maximum size of a routing table's text, in bytes */

/* from include/linux/pci_ids.h */
enum { VENDOR_NVIDIA = 0x10de, VENDOR_AMD = 0x1002, VENDOR_INTEL = 0x8086, CLASS_DISPLAY = 0x03, CLASS_ACCEL = 0x12 };
/* from include/uapi/linux/if_arp.h */
enum { TYPE_LOOPBACK = 772 };

static void add_node_note(struct hw_node *n)
{
    char **more = n->n_note < MAX_NOTES ? realloc(n->note, (n->n_note + 1) * sizeof(*more)) : NULL;
    if (more)
        n->note = more;
    if (!more || !(n->note[n->n_note] = strdup(hw_error())))
        n->notes_lost++;
    else
        n->n_note++;
}

/* If a file is absent or unreadable, the value is unknown. If a file is malformed, a note is also added. */
static void note_if_malformed(struct hw_node *n, int rc)
{
    if (rc == -EINVAL || rc == -E2BIG || rc == -ENODATA || rc == -ELOOP)
        add_node_note(n);
}

/* Reads a number within [0, max] from a file. Returns -1 if it is unknown. */
static int64_t read_node_number(struct hw_node *n, int root, const char *dir, const char *name, const char *file,
                                int64_t max)
{
    int64_t v = -1;
    int rc = hw_root_i64(root, &v, "%s/%s/%s", dir, name, file);
    if (rc == 0 && (v < -1 || v > max))
        rc = hw_fail(-EINVAL, "%s/%s/%s: %lld is out of range", dir, name, file, (long long)v);
    note_if_malformed(n, rc);
    return rc < 0 ? -1 : v;
}

static void read_node_text(int root, char *out, size_t cap, const char *dir, const char *name, const char *file)
{
    if (hw_root_text(root, out, cap, "%s/%s/%s", dir, name, file) < 0)
        *out = 0;
}

/* ---- PCI ------------------------------------------------------------------------------------ */

#define PCI_DIR "sys/bus/pci/devices"

static unsigned read_pci_speed(struct hw_node *n, int root, const char *name, const char *file)
{
    char text[64];
    unsigned v = 0;
    int rc = hw_root_text(root, text, sizeof(text), PCI_DIR "/%s/%s", name, file);
    if (rc > 0 && (rc = hw_pci_speed_parse(text, &v)) < 0)
        hw_wrap(rc, PCI_DIR "/%s/%s", name, file);
    note_if_malformed(n, rc);
    return v;
}

static unsigned read_pci_lanes(struct hw_node *n, int root, const char *name, const char *file)
{
    int64_t v = read_node_number(n, root, PCI_DIR, name, file, 255); /* a link that is down reports 255 */
    return v < 0 || v == 255 ? 0 : (unsigned)v;
}

static int by_node_pci_address(const void *a, const void *b)
{
    const struct hw_pci_path *x = &((const struct hw_pci_dev *)a)->path, *y = &((const struct hw_pci_dev *)b)->path;
    return hw_bdf_cmp(x->at[x->depth - 1], y->at[y->depth - 1]);
}

static int find_pci(const struct hw_node *n, struct hw_bdf at)
{
    const struct hw_pci_dev key = {.path = {.depth = 1, .at = {at}}};
    const struct hw_pci_dev *d =
        n->n_pci ? bsearch(&key, n->pci, n->n_pci, sizeof(*n->pci), by_node_pci_address) : NULL;
    return d ? (int)(d - n->pci) : -1;
}

static void read_pci_device(struct hw_node *n, int root, const char *name, struct hw_pci_dev *d)
{
    d->class = (uint32_t)HW_MAX(read_node_number(n, root, PCI_DIR, name, "class", 0xffffff), 0);
    d->vendor = (uint16_t)HW_MAX(read_node_number(n, root, PCI_DIR, name, "vendor", 0xffff), 0);
    d->device = (uint16_t)HW_MAX(read_node_number(n, root, PCI_DIR, name, "device", 0xffff), 0);
    d->numa = (int)read_node_number(n, root, PCI_DIR, name, "numa_node", 65535);
    d->mts = read_pci_speed(n, root, name, "current_link_speed");
    d->lanes = read_pci_lanes(n, root, name, "current_link_width");
    d->max_mts = read_pci_speed(n, root, name, "max_link_speed");
    d->max_lanes = read_pci_lanes(n, root, name, "max_link_width");
    if (hw_root_link_name(root, d->driver, sizeof(d->driver), PCI_DIR "/%s/driver", name) < 0)
        d->driver[0] = 0;
}

static int scan_pci(struct hw_node *n, int root)
{
    struct hw_names l;
    int rc = hw_root_list(root, &l, PCI_DIR);
    note_if_malformed(n, rc);
    n->pci = calloc(l.n + 1, sizeof(*n->pci));
    if (!n->pci) {
        int none = hw_no_memory("%zu PCI devices", l.n);
        hw_names_free(&l);
        return none;
    }
    for (size_t i = 0; i < l.n; i++) {
        struct hw_pci_dev *d = &n->pci[n->n_pci];
        char link[PATH_MAX];
        struct hw_bdf at;
        *d = (struct hw_pci_dev){0};
        if ((rc = hw_root_link(root, link, sizeof(link), PCI_DIR "/%s", l.name[i])) < 0 ||
            (rc = hw_bdf_parse(l.name[i], &at)) < 0 || (rc = hw_pci_path_parse(link, &d->path)) < 0 ||
            (hw_bdf_cmp(at, d->path.at[d->path.depth - 1]) != 0 &&
             (rc = hw_fail(-EINVAL, "the link leads to '%s', a different device", link)) < 0)) {
            hw_wrap(rc, PCI_DIR "/%s", l.name[i]);
            add_node_note(n);
            continue;
        }
        read_pci_device(n, root, l.name[i], d);
        n->n_pci++;
    }
    hw_names_free(&l);
    qsort(n->pci, n->n_pci, sizeof(*n->pci), by_node_pci_address);
    /* if one address occurs twice, in different notations, keep the first */
    size_t kept = 0;
    for (size_t i = 0; i < n->n_pci; i++)
        if (kept == 0 || by_node_pci_address(&n->pci[kept - 1], &n->pci[i]) != 0)
            n->pci[kept++] = n->pci[i];
    n->n_pci = kept;
    return 0;
}

const char *hw_pci_vendor(uint16_t vendor)
{
    return vendor == VENDOR_NVIDIA ? "NVIDIA" : vendor == VENDOR_AMD ? "AMD" : vendor == VENDOR_INTEL ? "Intel" : "";
}

/* Returns true for display controllers, and for processing accelerators of the three vendors, which include the compute
 * GPUs of AMD and Intel. */
static bool is_gpu_pci_device(const struct hw_pci_dev *d)
{
    return d->class >> 16 == CLASS_DISPLAY || (d->class >> 16 == CLASS_ACCEL && *hw_pci_vendor(d->vendor));
}

static int scan_gpus(struct hw_node *n, const struct hw_scan *opt)
{
    n->gpu = calloc(n->n_pci + opt->n_cuda + 1, sizeof(*n->gpu));
    if (!n->gpu)
        return hw_no_memory("the list of GPUs");
    if (opt->cuda) {
        for (size_t i = 0; i < opt->n_cuda; i++) {
            int pci = find_pci(n, opt->cuda[i]);
            n->gpu[n->n_gpu] = (struct hw_gpu){opt->cuda[i], pci, (int)n->n_gpu};
            n->n_gpu++;
            if (pci < 0) {
                char at[HW_BDF_TEXT];
                hw_fail(0,
                        "GPU %zu: CUDA reports PCI address %s, but sysfs has no such device, so the GPU's PCI path is "
                        "unknown",
                        i, hw_bdf_text(opt->cuda[i], at));
                add_node_note(n);
            }
        }
    }
    for (int cuda = !opt->cuda; cuda >= 0; cuda--) {
        for (size_t i = 0; i < n->n_pci; i++) {
            const struct hw_pci_dev *d = &n->pci[i];
            bool known = false, nvidia = d->vendor == VENDOR_NVIDIA;
            for (size_t k = 0; k < n->n_gpu; k++)
                known |= n->gpu[k].pci == (int)i;
            if (known || !is_gpu_pci_device(d) || (cuda && !nvidia))
                continue;
            n->gpu[n->n_gpu] = (struct hw_gpu){d->path.at[d->path.depth - 1], (int)i, cuda ? (int)n->n_gpu : -1};
            n->n_gpu++;
        }
        if (cuda)
            n->n_cuda = n->n_gpu;
    }
    if (opt->cuda)
        n->n_cuda = opt->n_cuda;
    return 0;
}

/* ---- interfaces and RDMA devices ------------------------------------------------------------ */

#define NET_DIR "sys/class/net"

/* Returns the index of the PCI function of class device dir/name. The path contains the function if the entry is a
 * link; in a sysfs that was rebuilt with directories instead of links, the link "device" leads to the function. */
static int pci_of(struct hw_node *n, int root, const char *dir, const char *name)
{
    static const char *const link[] = {"", "/device"};
    for (size_t i = 0; i < HW_ARRAY_LEN(link); i++) {
        char target[PATH_MAX];
        struct hw_pci_path way;
        struct hw_bdf at;
        if (hw_root_link(root, target, sizeof(target), "%s/%s%s", dir, name, link[i]) < 0)
            continue;
        if (hw_pci_path_parse(target, &way) == 0)
            return find_pci(n, way.at[way.depth - 1]);
        const char *slash = strrchr(target, '/');
        if (hw_bdf_parse(slash ? slash + 1 : target, &at) == 0)
            return find_pci(n, at);
    }
    return -1;
}

static void read_netdev(struct hw_node *n, int root, const char *name, struct hw_netdev *d)
{
    snprintf(d->name, sizeof(d->name), "%s", name);
    d->pci = pci_of(n, root, NET_DIR, name);
    d->mtu = read_node_number(n, root, NET_DIR, name, "mtu", INT32_MAX);
    d->loopback = read_node_number(n, root, NET_DIR, name, "type", 65535) == TYPE_LOOPBACK;
    read_node_text(root, d->state, sizeof(d->state), NET_DIR, name, "operstate");
    /* a read fails with EINVAL while the NIC is down, and returns -1 or 2^32-1 if the speed is unknown to the driver
     * (net/core/net-sysfs.c) */
    d->speed = -1;
    if (hw_root_i64(root, &d->speed, NET_DIR "/%s/speed", name) < 0 || d->speed <= 0 || d->speed >= INT32_MAX)
        d->speed = -1;
    if (hw_root_link_name(root, d->driver, sizeof(d->driver), NET_DIR "/%s/device/driver", name) < 0)
        d->driver[0] = 0;
    if (hw_root_link_name(root, d->master, sizeof(d->master), NET_DIR "/%s/master", name) < 0)
        d->master[0] = 0;
    struct hw_names l;
    if (d->pci < 0 && hw_root_list(root, &l, NET_DIR "/%s", name) == 0) {
        for (size_t i = 0; i < l.n && !d->over[0]; i++)
            if (strncmp(l.name[i], "lower_", 6) == 0 && strlen(l.name[i]) < sizeof(d->over) + 6)
                memcpy(d->over, l.name[i] + 6, strlen(l.name[i]) - 5);
        hw_names_free(&l);
    }
}

static struct hw_netdev *find_netdev(const struct hw_node *n, const char *name)
{
    for (size_t i = 0; i < n->n_netdev; i++)
        if (strcmp(n->netdev[i].name, name) == 0)
            return &n->netdev[i];
    return NULL;
}

/* Gives each interface without a PCI function of its own, such as a bond or VLAN, the function of the interface below
 * it. */
static void locate_stacked_netdevs(struct hw_node *n)
{
    for (size_t i = 0; i < n->n_netdev; i++) {
        const struct hw_netdev *d = &n->netdev[i];
        for (int steps = 0; d && d->pci < 0 && d->over[0] && steps < 8; steps++)
            d = find_netdev(n, d->over);
        n->netdev[i].pci = d ? d->pci : -1;
    }
}

/* Returns the interface if a line of a routing table is a default route, and NULL otherwise. The fields of
 * /proc/net/route are interface, destination, gateway, flags, RefCnt, Use, metric, mask... (net/ipv4/fib_trie.c,
 * fib_route_seq_show()). The fields of /proc/net/ipv6_route are destination and its length, source and its length, next
 * hop, metric, refcount, use, flags and interface (net/ipv6/ip6_fib.c). An IPv6 default route with RTF_REJECT
 * (include/uapi/linux/route.h) is not usable. All numbers are hexadecimal. */
static const char *default_route(char *line, bool v6)
{
    enum { REJECT = 0x200 };
    static const char zero[] = "00000000000000000000000000000000";
    char *field[10], *save;
    size_t n = 0;
    for (char *w = strtok_r(line, " \t", &save); w && n < HW_ARRAY_LEN(field); w = strtok_r(NULL, " \t", &save))
        field[n++] = w;
    if (!v6)
        return n >= 8 && strcmp(field[1], zero + 24) == 0 && strcmp(field[7], zero + 24) == 0 ? field[0] : NULL;
    if (n < 10 || strcmp(field[0], zero) != 0 || strcmp(field[1], "00") != 0)
        return NULL;
    return strtoul(field[8], NULL, 16) & REJECT ? NULL : field[9];
}

static void default_routes(struct hw_node *n, int root)
{
    char *text = malloc(ROUTES_MAX), *save;
    if (!text)
        return; /* no default route is known in this case */
    for (int v6 = 0; v6 < 2; v6++) {
        int rc = hw_root_text(root, text, ROUTES_MAX, "%s", v6 ? "proc/net/ipv6_route" : "proc/net/route");
        if (rc == -E2BIG)
            add_node_note(n);
        if (rc < 0)
            continue;
        for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
            const char *name = default_route(line, v6);
            struct hw_netdev *d = name ? find_netdev(n, name) : NULL;
            if (d)
                d->default_route = true;
        }
    }
    free(text);
}

static int mark_addressed_netdevs(struct hw_node *n)
{
    struct hw_nic *nic = calloc(MAX_ADDRS, sizeof(*nic));
    int count = nic ? hw_nics_list(nic, MAX_ADDRS, true) : hw_no_memory("the NICs' addresses");
    for (int i = 0; i < count; i++) {
        struct hw_netdev *d = find_netdev(n, nic[i].name);
        if (d)
            d->address = true;
    }
    free(nic);
    return count < 0 ? count : 0;
}

static int scan_net(struct hw_node *n, int root, bool live)
{
    struct hw_names l;
    note_if_malformed(n, hw_root_list(root, &l, NET_DIR));
    n->netdev = calloc(l.n + 1, sizeof(*n->netdev));
    if (!n->netdev) {
        int none = hw_no_memory("%zu interfaces", l.n);
        hw_names_free(&l);
        return none;
    }
    for (size_t i = 0; i < l.n; i++) {
        /* skips bonding_masters, which is a file */
        if (strlen(l.name[i]) < HW_NODE_NAME && hw_root_has(root, NET_DIR "/%s/.", l.name[i]))
            read_netdev(n, root, l.name[i], &n->netdev[n->n_netdev++]);
    }
    hw_names_free(&l);
    locate_stacked_netdevs(n);
    default_routes(n, root);
    n->live = live;
    return live ? mark_addressed_netdevs(n) : 0;
}

#define RDMA_DIR "sys/class/infiniband"

static int scan_rdma(struct hw_node *n, int root)
{
    struct hw_names l;
    note_if_malformed(n, hw_root_list(root, &l, RDMA_DIR));
    n->rdma = calloc(l.n + 1, sizeof(*n->rdma));
    if (!n->rdma) {
        int none = hw_no_memory("%zu RDMA devices", l.n);
        hw_names_free(&l);
        return none;
    }
    for (size_t i = 0; i < l.n; i++) {
        if (strlen(l.name[i]) >= HW_NODE_NAME)
            continue;
        struct hw_rdma *r = &n->rdma[n->n_rdma++];
        snprintf(r->name, sizeof(r->name), "%s", l.name[i]);
        r->pci = pci_of(n, root, RDMA_DIR, r->name);
        char state[HW_NODE_NAME];
        read_node_text(root, state, sizeof(state), RDMA_DIR, r->name, "ports/1/state"); /* for example "4: ACTIVE" */
        const char *colon = strstr(state, ": ");
        snprintf(r->state, sizeof(r->state), "%s", colon ? colon + 2 : state);
        read_node_text(root, r->rate, sizeof(r->rate), RDMA_DIR, r->name, "ports/1/rate");
        read_node_text(root, r->link, sizeof(r->link), RDMA_DIR, r->name, "ports/1/link_layer");
        for (size_t k = 0; k < n->n_netdev; k++) {
            struct hw_netdev *d = &n->netdev[k];
            if (r->pci >= 0 && d->pci == r->pci && !d->over[0] && !d->rdma[0])
                memcpy(d->rdma, r->name, sizeof(r->name));
        }
    }
    hw_names_free(&l);
    return 0;
}

/* ---- NUMA nodes and CPUs -------------------------------------------------------------------- */

/* Reads a list of CPUs, which is "" if the file has none or is unreadable or malformed. Returns NULL if out of
 * memory. */
static char *read_cpu_list(struct hw_node *n, int root, const char *path, size_t *count)
{
    char text[HW_ATTR_MAX];
    cpu_set_t set;
    *count = 0;
    int rc = hw_root_text(root, text, sizeof(text), "%s", path);
    if (rc > 0 && (rc = hw_text_cpulist(text, &set, count)) < 0)
        hw_wrap(rc, "%s", path);
    if (rc != -ENODATA) /* a NUMA node may have memory and no CPUs */
        note_if_malformed(n, rc);
    return strdup(rc < 0 ? "" : text);
}

static int by_numa_id(const void *a, const void *b)
{
    return ((const struct hw_numa *)a)->id - ((const struct hw_numa *)b)->id;
}

/* Reads the distances to all online nodes in the order of their IDs, such as "10 21" (drivers/base/node.c,
 * node_read_distance()). */
static int read_numa_distances(struct hw_node *n, int root, struct hw_numa *m)
{
    char text[HW_ATTR_MAX], *save;
    int rc = hw_root_text(root, text, sizeof(text), "sys/devices/system/node/node%d/distance", m->id);
    note_if_malformed(n, rc);
    if (rc < 0)
        return 0;
    m->distance = calloc(n->n_numa, sizeof(*m->distance));
    if (!m->distance)
        return hw_no_memory("NUMA distances");
    size_t k = 0;
    uint64_t v;
    bool good = true;
    for (const char *w = strtok_r(text, " ", &save); w && good; w = strtok_r(NULL, " ", &save)) {
        good = k < n->n_numa && hw_text_u64(w, &v) == 0 && v <= 255;
        if (good)
            m->distance[k++] = (unsigned)v;
    }
    if (!good || k != n->n_numa) {
        note_if_malformed(
            n,
            hw_fail(
                -EINVAL,
                "sys/devices/system/node/node%d/distance: must have a number up to 255 for each of the %zu NUMA nodes",
                m->id, n->n_numa));
        free(m->distance);
        m->distance = NULL;
    }
    return 0;
}

/* Reads the NUMA node of one entry in the nodes' folder. Skips entries that are not nodes. */
static int read_numa_node(struct hw_node *n, int root, const char *name)
{
    uint64_t id;
    /* rejects leading zeros, since "node007" would duplicate "node7" */
    if (strncmp(name, "node", 4) != 0 || name[4] < '0' || (name[4] == '0' && name[5]) ||
        hw_text_u64(name + 4, &id) < 0 || id > 65535)
        return 0;
    struct hw_numa *m = &n->numa[n->n_numa++];
    char path[64];
    snprintf(path, sizeof(path), "sys/devices/system/node/node%d/cpulist", (int)id);
    *m = (struct hw_numa){.id = (int)id, .package = -1};
    m->cpus = read_cpu_list(n, root, path, &m->n_cpus);
    if (!m->cpus)
        return hw_no_memory("the list of NUMA nodes");
    if (!m->cpus[0])
        return 0;
    snprintf(path, sizeof(path), "cpu%lu", strtoul(m->cpus, NULL, 10));
    m->package = (int)read_node_number(n, root, "sys/devices/system/cpu", path, "topology/physical_package_id", 65535);
    return 0;
}

static int scan_numa(struct hw_node *n, int root)
{
    struct hw_names l;
    size_t ignored;
    n->cpus = read_cpu_list(n, root, "sys/devices/system/cpu/online", &ignored);
    note_if_malformed(n, hw_root_list(root, &l, "sys/devices/system/node"));
    n->numa = calloc(l.n + 1, sizeof(*n->numa));
    int rc = n->numa && n->cpus ? 0 : hw_no_memory("the list of NUMA nodes");
    for (size_t i = 0; i < l.n && rc == 0; i++)
        rc = read_numa_node(n, root, l.name[i]);
    hw_names_free(&l);
    if (rc < 0)
        return rc;
    if (n->n_numa > 1)
        qsort(n->numa, n->n_numa, sizeof(*n->numa), by_numa_id);
    for (size_t i = 0; i < n->n_numa && rc == 0; i++)
        rc = read_numa_distances(n, root, &n->numa[i]);
    return rc;
}

/* ---- all of it ------------------------------------------------------------------------------ */

int hw_node_scan(struct hw_node *out, int root, const struct hw_scan *opt)
{
    *out = (struct hw_node){0};
    if (!hw_root_has(root, "sys/."))
        return hw_fail(-ENOENT,
                       "the root folder contains no sys folder, so it is neither a machine's root nor a snapshot");
    char vendor[60], product[60];
    read_node_text(root, vendor, sizeof(vendor), "sys/class/dmi", "id", "sys_vendor");
    read_node_text(root, product, sizeof(product), "sys/class/dmi", "id", "product_name");
    bool twice = *vendor && strncmp(product, vendor, strlen(vendor)) == 0; /* as in "Google", "Google Compute Engine" */
    snprintf(out->machine, sizeof(out->machine), "%s%s%s", twice ? "" : vendor,
             !twice && *vendor && *product ? " " : "", product);
    int rc;
    if ((rc = scan_pci(out, root)) < 0 || (rc = scan_gpus(out, opt)) < 0 || (rc = scan_net(out, root, opt->live)) < 0 ||
        (rc = scan_rdma(out, root)) < 0)
        return rc;
    return scan_numa(out, root);
}

void hw_node_free(struct hw_node *n)
{
    for (size_t i = 0; i < n->n_numa; i++) {
        free(n->numa[i].cpus);
        free(n->numa[i].distance);
    }
    for (size_t i = 0; i < n->n_note; i++)
        free(n->note[i]);
    free(n->pci);
    free(n->gpu);
    free(n->netdev);
    free(n->rdma);
    free(n->numa);
    free(n->note);
    free(n->cpus);
    *n = (struct hw_node){0};
}

enum hw_dist hw_node_distance(const struct hw_node *n, int pci_a, int pci_b)
{
    if (pci_a < 0 || pci_b < 0)
        return HW_DIST_SYS;
    const struct hw_pci_dev *a = &n->pci[pci_a], *b = &n->pci[pci_b];
    return hw_pci_distance(&a->path, a->numa, &b->path, b->numa);
}

static const struct hw_numa *find_numa(const struct hw_node *n, int id)
{
    for (size_t i = 0; i < n->n_numa; i++)
        if (n->numa[i].id == id)
            return &n->numa[i];
    return NULL;
}

unsigned hw_node_numa_distance(const struct hw_node *n, int a, int b)
{
    const struct hw_numa *x = find_numa(n, a), *y = find_numa(n, b);
    return x && y && x->distance ? x->distance[y - n->numa] : 0;
}

const char *hw_node_cpus(const struct hw_node *n, int numa)
{
    const struct hw_numa *m = find_numa(n, numa);
    return m && m->cpus[0] ? m->cpus : n->cpus ? n->cpus : "";
}
