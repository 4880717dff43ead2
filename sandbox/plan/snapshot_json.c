/* SPDX-License-Identifier: Apache-2.0 */
/* The snapshot as JSON (docs/sandbox.md). It is written with hw_json and read with jansson, and all input is
 * checked. */
#include "sandbox/plan/snapshot.h"
#include "sys/files.h"
#include "sys/json.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCHEMA "hawser-snapshot"

/* Limits for untrusted snapshots. */
enum {
    MAX_FILE = 64 << 20,
    MAX_PCI = 8192,
    MAX_DEVS = 4096, /* for interfaces, and for RDMA devices */
    MAX_PORTS = 255,
    MAX_GIDS = 4096, /* per port */
    MAX_ADDRS = 1024,
    MAX_IDS = 65536, /* for NUMA nodes, and for CPUs */
    MAX_ATTRS = 1024,
    MAX_VALUE = 4096, /* bytes, a page */
    MAX_CONFIG = 4096,
};

/* ---- writing -------------------------------------------------------------------------------- */

static void write_attrs(struct hw_json *j, const char *key, const struct sbx_attrs *a)
{
    hw_json_object(j, key);
    for (size_t i = 0; i < a->n; i++)
        hw_json_str(j, a->v[i].name, a->v[i].value);
    hw_json_end(j);
}

static void write_name(struct hw_json *j, const char *key, const char *name)
{
    if (*name)
        hw_json_str(j, key, name);
}

static void write_pci(struct hw_json *j, const struct sbx_pci *d)
{
    char hex[2 * MAX_CONFIG + 1];
    hw_json_object(j, NULL);
    hw_json_str(j, "path", d->path);
    write_name(j, "driver", d->driver);
    write_attrs(j, "files", &d->attr);
    for (size_t i = 0; i < d->n_config; i++)
        snprintf(hex + 2 * i, 3, "%02x", d->config[i]);
    if (d->n_config)
        hw_json_str(j, "config", hex);
    hw_json_end(j);
}

static void write_net(struct hw_json *j, const struct sbx_netdev *d, bool addresses)
{
    hw_json_object(j, NULL);
    hw_json_str(j, "name", d->name);
    hw_json_str(j, "path", d->path);
    write_name(j, "driver", d->driver);
    write_name(j, "bus", d->bus);
    write_name(j, "master", d->master);
    write_name(j, "over", d->over);
    hw_json_bool(j, "default_route", d->default_route);
    write_attrs(j, "files", &d->attr);
    if (addresses) {
        hw_json_array(j, "addresses");
        for (size_t i = 0; i < d->n_addr; i++) {
            char ip[INET6_ADDRSTRLEN], text[INET6_ADDRSTRLEN + 8];
            inet_ntop(d->addr[i].family, &d->addr[i].v4, ip, sizeof(ip)); /* v4 and v6 begin at the same address */
            snprintf(text, sizeof(text), "%s/%u", ip, d->addr[i].prefix);
            hw_json_str(j, NULL, text);
        }
        hw_json_end(j);
    }
    hw_json_end(j);
}

static void write_rdma(struct hw_json *j, const struct sbx_rdma *r)
{
    hw_json_object(j, NULL);
    hw_json_str(j, "name", r->name);
    hw_json_str(j, "path", r->path);
    write_attrs(j, "files", &r->attr);
    if (r->uverbs[0]) {
        hw_json_object(j, "uverbs");
        hw_json_str(j, "name", r->uverbs);
        hw_json_str(j, "path", r->uverbs_path);
        write_attrs(j, "files", &r->uverbs_attr);
        hw_json_end(j);
    }
    hw_json_array(j, "ports");
    for (size_t i = 0; i < r->n_port; i++) {
        const struct sbx_port *p = &r->port[i];
        hw_json_object(j, NULL);
        hw_json_u64(j, "port", p->port);
        write_attrs(j, "files", &p->attr);
        hw_json_u64(j, "gid_table", p->gids);
        hw_json_array(j, "gids");
        for (size_t k = 0; k < p->n_gid; k++) {
            hw_json_object(j, NULL);
            hw_json_u64(j, "index", p->gid[k].index);
            hw_json_str(j, "gid", p->gid[k].gid);
            write_name(j, "type", p->gid[k].type);
            write_name(j, "ndev", p->gid[k].ndev);
            hw_json_end(j);
        }
        hw_json_end(j);
        hw_json_end(j);
    }
    hw_json_end(j);
    hw_json_end(j);
}

static void write_numbered(struct hw_json *j, const char *key, const char *id, const struct sbx_numbered *v, size_t n)
{
    hw_json_array(j, key);
    for (size_t i = 0; i < n; i++) {
        hw_json_object(j, NULL);
        hw_json_u64(j, id, v[i].id);
        write_attrs(j, "files", &v[i].attr);
        hw_json_end(j);
    }
    hw_json_end(j);
}

int sbx_snapshot_write(const struct sbx_snapshot *s, FILE *out)
{
    struct hw_json j;
    hw_json_init(&j, out);
    hw_json_object(&j, NULL);
    hw_json_str(&j, "schema", SCHEMA);
    hw_json_u64(&j, "version", SBX_SNAPSHOT_VERSION);
    hw_json_bool(&j, "addresses", s->addresses);
    hw_json_bool(&j, "gids", s->gids);
    hw_json_array(&j, "pci");
    for (size_t i = 0; i < s->n_pci; i++)
        write_pci(&j, &s->pci[i]);
    hw_json_end(&j);
    hw_json_array(&j, "net");
    for (size_t i = 0; i < s->n_net; i++)
        write_net(&j, &s->net[i], s->addresses);
    hw_json_end(&j);
    hw_json_array(&j, "rdma");
    for (size_t i = 0; i < s->n_rdma; i++)
        write_rdma(&j, &s->rdma[i]);
    hw_json_end(&j);
    write_numbered(&j, "numa", "node", s->numa, s->n_numa);
    write_numbered(&j, "cpus", "cpu", s->cpu, s->n_cpu);
    write_attrs(&j, "files", &s->file);
    hw_json_end(&j);
    int rc = hw_json_finish(&j);
    return rc < 0 ? hw_fail(rc, "writing the snapshot failed: %s", hw_errno_text(rc)) : 0;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Returns the member `key` of o, or NULL. Sets *rc if the member has the wrong type, or if it is missing and `must` is
 * set. Does nothing if *rc is already an error. */
static json_t *get_snapshot_member(json_t *o, const char *key, json_type type, bool must, int *rc)
{
    json_t *v = json_object_get(o, key);
    if (*rc < 0)
        return NULL;
    if (!v && !must)
        return NULL;
    if (!v || json_typeof(v) != type) {
        *rc = hw_fail(-EINVAL, "'%s' is %s", key, v ? "of the wrong type" : "missing");
        return NULL;
    }
    return v;
}

static bool read_snapshot_flag(json_t *o, const char *key, int *rc)
{
    json_t *v = json_object_get(o, key);
    if (*rc == 0 && !json_is_boolean(v))
        *rc = hw_fail(-EINVAL, "'%s' is not true or false", key);
    return json_is_true(v);
}

static unsigned read_snapshot_number(json_t *o, const char *key, unsigned max, int *rc)
{
    json_t *v = get_snapshot_member(o, key, JSON_INTEGER, true, rc);
    if (!v)
        return 0;
    json_int_t n = json_integer_value(v);
    if (n < 0 || n > max) {
        *rc = hw_fail(-EINVAL, "'%s' is %lld, but must be from 0 to %u", key, (long long)n, max);
        return 0;
    }
    return (unsigned)n;
}

/* Reads a name into out. out becomes "" if an optional name is missing. */
static void read_snapshot_name(json_t *o, const char *key, char out[SBX_NAME], bool must, int *rc)
{
    json_t *v = get_snapshot_member(o, key, JSON_STRING, must, rc);
    out[0] = 0;
    if (!v)
        return;
    const char *text = json_string_value(v);
    if (!sbx_name_ok(text))
        *rc = hw_fail(-EINVAL, "'%s' is '%.80s', which is not a valid name", key, text);
    else
        memcpy(out, text, strlen(text) + 1);
}

static char *read_snapshot_path(json_t *o, int *rc)
{
    json_t *v = get_snapshot_member(o, "path", JSON_STRING, true, rc);
    if (!v)
        return NULL;
    const char *text = json_string_value(v);
    if (strncmp(text, "devices/", 8) != 0 || !sbx_path_ok(text)) {
        *rc = hw_fail(-EINVAL, "'path' is '%.120s', which is not a device below /sys", text);
        return NULL;
    }
    char *copy = strdup(text);
    if (!copy)
        *rc = hw_no_memory("the snapshot");
    return copy;
}

static void read_snapshot_attrs(json_t *o, struct sbx_attrs *a, int *rc)
{
    json_t *v = get_snapshot_member(o, "files", JSON_OBJECT, true, rc), *value;
    const char *key;
    if (!v)
        return;
    if (json_object_size(v) > MAX_ATTRS) {
        *rc = hw_fail(-E2BIG, "an object has more than %d files", MAX_ATTRS);
        return;
    }
    json_object_foreach(v, key, value)
    {
        if (!sbx_path_ok(key))
            *rc = hw_fail(-EINVAL, "'%.120s' is not a file name", key);
        else if (!json_is_string(value) || json_string_length(value) > MAX_VALUE)
            *rc = hw_fail(-EINVAL, "the text of file '%s' is not a string, or is longer than a page", key);
        else
            *rc = sbx_attr_add(a, key, json_string_value(value));
        if (*rc < 0)
            return;
    }
}

/* Allocates an array of `size` bytes per element in *out for the JSON array `key` of o, and returns the JSON array. */
static json_t *read_snapshot_array(json_t *o, const char *key, size_t max, size_t size, void *out, int *rc)
{
    json_t *v = get_snapshot_member(o, key, JSON_ARRAY, true, rc);
    if (!v)
        return NULL;
    size_t n = json_array_size(v);
    if (n > max) {
        *rc = hw_fail(-E2BIG, "'%s' has %zu elements; at most %zu are allowed", key, n, max);
        return NULL;
    }
    void *room = calloc(n + 1, size);
    if (!room) {
        *rc = hw_no_memory("the snapshot");
        return NULL;
    }
    memcpy(out, &room, sizeof(room));
    return v;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void read_snapshot_config(json_t *o, struct sbx_pci *d, int *rc)
{
    json_t *v = get_snapshot_member(o, "config", JSON_STRING, false, rc);
    if (!v)
        return;
    const char *text = json_string_value(v);
    size_t len = strlen(text);
    bool good = len > 0 && len % 2 == 0 && len <= (size_t)2 * MAX_CONFIG;
    d->config = good ? malloc(len / 2) : NULL;
    if (good && !d->config) {
        *rc = hw_no_memory("the snapshot");
        return;
    }
    for (size_t i = 0; good && i < len; i += 2) {
        int a = hex_digit(text[i]), b = hex_digit(text[i + 1]);
        good = a >= 0 && b >= 0;
        d->config[i / 2] = good ? (uint8_t)(a << 4 | b) : 0;
    }
    if (good)
        d->n_config = len / 2;
    else
        *rc = hw_fail(-EINVAL, "'config' is not 1 to %d bytes in hexadecimal", MAX_CONFIG);
}

static void read_snapshot_pci(json_t *o, struct sbx_pci *d, int *rc)
{
    d->path = read_snapshot_path(o, rc);
    read_snapshot_name(o, "driver", d->driver, false, rc);
    read_snapshot_attrs(o, &d->attr, rc);
    read_snapshot_config(o, d, rc);
}

static void read_addr(json_t *v, struct sbx_addr *a, int *rc)
{
    const char *text = json_is_string(v) ? json_string_value(v) : "";
    char ip[INET6_ADDRSTRLEN];
    size_t n = strcspn(text, "/");
    unsigned bits = 0;
    bool good = n < sizeof(ip) && text[n];
    const char *p = good ? text + n + 1 : "";
    for (good = *p != 0; *p >= '0' && *p <= '9' && bits < 1000; p++)
        bits = 10 * bits + (unsigned)(*p - '0');
    good &= !*p;
    if (good) {
        memcpy(ip, text, n);
        ip[n] = 0;
        a->family = strchr(ip, ':') ? AF_INET6 : AF_INET;
        a->prefix = bits;
        good = bits <= (a->family == AF_INET ? 32u : 128u) && inet_pton(a->family, ip, &a->v4) == 1;
    }
    if (!good)
        *rc = hw_fail(-EINVAL, "'%.60s' is not an address such as 10.0.0.1/24", text);
}

static void read_net(json_t *o, struct sbx_netdev *d, bool addresses, int *rc)
{
    read_snapshot_name(o, "name", d->name, true, rc);
    d->path = read_snapshot_path(o, rc);
    read_snapshot_name(o, "driver", d->driver, false, rc);
    read_snapshot_name(o, "bus", d->bus, false, rc);
    read_snapshot_name(o, "master", d->master, false, rc);
    read_snapshot_name(o, "over", d->over, false, rc);
    d->default_route = read_snapshot_flag(o, "default_route", rc);
    read_snapshot_attrs(o, &d->attr, rc);
    json_t *a = addresses ? read_snapshot_array(o, "addresses", MAX_ADDRS, sizeof(*d->addr), &d->addr, rc) : NULL;
    for (size_t i = 0; i < json_array_size(a) && *rc == 0; i++)
        read_addr(json_array_get(a, i), &d->addr[d->n_addr++], rc);
}

/* Checks that the text has eight groups of four hexadecimal digits, as in sysfs. */
static bool gid_ok(const char *text)
{
    for (size_t i = 0; i < 39; i++)
        if (i % 5 == 4 ? text[i] != ':' : hex_digit(text[i]) < 0)
            return false;
    return !text[39];
}

static void read_gid(json_t *o, struct sbx_gid *g, int *rc)
{
    g->index = read_snapshot_number(o, "index", MAX_GIDS - 1, rc);
    json_t *gid = get_snapshot_member(o, "gid", JSON_STRING, true, rc),
           *type = get_snapshot_member(o, "type", JSON_STRING, false, rc);
    if (gid && !gid_ok(json_string_value(gid)))
        *rc = hw_fail(-EINVAL, "'%.60s' is not a valid GID", json_string_value(gid));
    else if (gid)
        memcpy(g->gid, json_string_value(gid), sizeof(g->gid));
    if (type && json_string_length(type) >= sizeof(g->type))
        *rc = hw_fail(-EINVAL, "'%.60s' is not a valid GID type", json_string_value(type));
    else if (type)
        snprintf(g->type, sizeof(g->type), "%s", json_string_value(type));
    read_snapshot_name(o, "ndev", g->ndev, false, rc);
}

static void read_port(json_t *o, struct sbx_port *p, int *rc)
{
    p->port = read_snapshot_number(o, "port", MAX_PORTS, rc);
    read_snapshot_attrs(o, &p->attr, rc);
    p->gids = read_snapshot_number(o, "gid_table", MAX_GIDS, rc);
    json_t *a = read_snapshot_array(o, "gids", MAX_GIDS, sizeof(*p->gid), &p->gid, rc);
    for (size_t i = 0; i < json_array_size(a) && *rc == 0; i++)
        read_gid(json_array_get(a, i), &p->gid[p->n_gid++], rc);
}

static void read_rdma(json_t *o, struct sbx_rdma *r, int *rc)
{
    read_snapshot_name(o, "name", r->name, true, rc);
    r->path = read_snapshot_path(o, rc);
    read_snapshot_attrs(o, &r->attr, rc);
    json_t *u = get_snapshot_member(o, "uverbs", JSON_OBJECT, false, rc);
    if (u) {
        read_snapshot_name(u, "name", r->uverbs, true, rc);
        r->uverbs_path = read_snapshot_path(u, rc);
        read_snapshot_attrs(u, &r->uverbs_attr, rc);
    }
    json_t *a = read_snapshot_array(o, "ports", MAX_PORTS, sizeof(*r->port), &r->port, rc);
    for (size_t i = 0; i < json_array_size(a) && *rc == 0; i++)
        read_port(json_array_get(a, i), &r->port[r->n_port++], rc);
}

static void read_numbered(json_t *o, const char *key, const char *id, struct sbx_numbered **out, size_t *n, int *rc)
{
    json_t *a = read_snapshot_array(o, key, MAX_IDS, sizeof(**out), out, rc);
    for (size_t i = 0; i < json_array_size(a) && *rc == 0; i++) {
        struct sbx_numbered *v = &(*out)[(*n)++];
        v->id = read_snapshot_number(json_array_get(a, i), id, MAX_IDS - 1, rc);
        read_snapshot_attrs(json_array_get(a, i), &v->attr, rc);
        if (*rc < 0)
            *rc = hw_wrap(*rc, "%s[%zu]", key, i);
    }
}

static int read_snapshot_json(json_t *o, struct sbx_snapshot *s)
{
    int rc = 0;
    json_t *schema = get_snapshot_member(o, "schema", JSON_STRING, true, &rc);
    if (!schema || strcmp(json_string_value(schema), SCHEMA) != 0)
        return hw_fail(-EINVAL, "the snapshot's schema is not " SCHEMA);
    unsigned version = read_snapshot_number(o, "version", UINT_MAX, &rc);
    if (rc == 0 && version != SBX_SNAPSHOT_VERSION)
        return hw_fail(-EINVAL, "the snapshot has version %u, but this hawser supports version %d", version,
                       SBX_SNAPSHOT_VERSION);
    s->addresses = read_snapshot_flag(o, "addresses", &rc);
    s->gids = read_snapshot_flag(o, "gids", &rc);
    json_t *a = read_snapshot_array(o, "pci", MAX_PCI, sizeof(*s->pci), &s->pci, &rc);
    for (size_t i = 0; i < json_array_size(a) && rc == 0; i++) {
        read_snapshot_pci(json_array_get(a, i), &s->pci[s->n_pci++], &rc);
        rc = rc < 0 ? hw_wrap(rc, "pci[%zu]", i) : 0;
    }
    a = read_snapshot_array(o, "net", MAX_DEVS, sizeof(*s->net), &s->net, &rc);
    for (size_t i = 0; i < json_array_size(a) && rc == 0; i++) {
        read_net(json_array_get(a, i), &s->net[s->n_net++], s->addresses, &rc);
        rc = rc < 0 ? hw_wrap(rc, "net[%zu]", i) : 0;
    }
    a = read_snapshot_array(o, "rdma", MAX_DEVS, sizeof(*s->rdma), &s->rdma, &rc);
    for (size_t i = 0; i < json_array_size(a) && rc == 0; i++) {
        read_rdma(json_array_get(a, i), &s->rdma[s->n_rdma++], &rc);
        rc = rc < 0 ? hw_wrap(rc, "rdma[%zu]", i) : 0;
    }
    read_numbered(o, "numa", "node", &s->numa, &s->n_numa, &rc);
    read_numbered(o, "cpus", "cpu", &s->cpu, &s->n_cpu, &rc);
    read_snapshot_attrs(o, &s->file, &rc);
    return rc;
}

int sbx_snapshot_parse(struct sbx_snapshot *out, const char *text, size_t len)
{
    *out = (struct sbx_snapshot){0};
    json_error_t e;
    json_auto_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
    if (!o)
        return hw_fail(-EINVAL, "not valid JSON, in line %d: %.120s", e.line, e.text);
    int rc = read_snapshot_json(o, out);
    return rc < 0 ? rc : sbx_snapshot_settle(out);
}

int sbx_snapshot_load(struct sbx_snapshot *out, const char *file)
{
    *out = (struct sbx_snapshot){0};
    HW_AUTO_CLOSE int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return hw_fail(-errno, "%s: %s", file, strerror(errno));
    HW_AUTO_FREE char *text = NULL;
    size_t len = 0;
    int rc = hw_file_read(fd, MAX_FILE, "it", &text, &len);
    if (rc == 0)
        rc = sbx_snapshot_parse(out, text, len);
    return rc < 0 ? hw_wrap(rc, "%s is not a usable snapshot", file) : 0;
}
