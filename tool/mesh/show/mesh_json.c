/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/mesh/show/mesh_json.h"

#include "sys/json.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#define SCHEMA   "hawser-mesh-1"
#define LINE_MAX (1u << 20)

/* ---- writing ------------------------------------------------------------------------------------ */

static const char *const states[] = {
    [MESH_WELL] = "well", [MESH_ABSENT] = "absent", [MESH_DIED] = "died", [MESH_SILENT] = "silent"};

static void write_run(struct hw_json *j, const struct mesh *m)
{
    hw_json_str(j, "schema", SCHEMA);
    hw_json_str(j, "type", "run");
    hw_json_str(j, "hawser", hawser_version());
    hw_json_str(j, "date", m->date);
    hw_json_str(j, "what", m->what);
    hw_json_u64(j, "nodes", m->n);
    hw_json_u64(j, "rounds", m->rounds);
    hw_json_u64(j, "of_rounds", m->of_rounds);
    hw_json_double(j, "seconds", m->seconds);
    hw_json_u64(j, "checked_bytes", m->checked);
    hw_json_double(j, "bisection_GBps", m->bisection_GBps);
    hw_json_double(j, "all_to_all_GBps", m->all_GBps);
}

static void write_node(struct hw_json *j, const struct mesh *m, uint32_t i)
{
    const struct mesh_node *n = &m->node[i];
    hw_json_str(j, "type", "node");
    hw_json_u64(j, "node", i);
    hw_json_u64(j, "rank", n->rank);
    hw_json_str(j, "name", n->name);
    hw_json_str(j, "rack", n->rack);
    hw_json_str(j, "hawser", n->version);
    hw_json_str(j, "state", states[n->state]);
    hw_json_str(j, "why", n->why);
    hw_json_array(j, "nics");
    for (uint32_t k = 0; k < n->n_nics; k++) {
        hw_json_object(j, NULL);
        hw_json_str(j, "name", n->nic[k].name);
        hw_json_u64(j, "Mbps", n->nic[k].speed);
        hw_json_u64(j, "mtu", n->nic[k].mtu);
        hw_json_u64(j, "rx_errors", n->nic[k].rx_errors);
        hw_json_u64(j, "tx_errors", n->nic[k].tx_errors);
        hw_json_end(j);
    }
    hw_json_end(j);
}

static void write_sample(struct hw_json *j, const struct mesh_sample *s, const char *type)
{
    hw_json_str(j, "type", type);
    hw_json_str(j, "kind", mesh_kind_name(s->kind));
    hw_json_u64(j, "from", s->from);
    hw_json_u64(j, "to", s->to);
    if (s->nic != MESH_ALL) {
        hw_json_u64(j, "nic", s->nic);
        hw_json_u64(j, "to_nic", s->to_nic);
    }
    hw_json_double(j, s->kind == MESH_K_LATENCY ? "us" : "GBps", s->value);
}

static void write_finding(struct hw_json *j, const struct mesh *m, const struct mesh_finding *f)
{
    char text[512];
    mesh_say(m, f, text, sizeof text);
    hw_json_str(j, "type", "finding");
    hw_json_str(j, "what", mesh_fault_name(f->what));
    if (f->kind)
        hw_json_str(j, "kind", mesh_kind_name(f->kind));
    if (f->node >= 0)
        hw_json_str(j, "node", f->what == MESH_F_RAIL ? NULL : m->node[f->node].name);
    if (f->node >= 0 && f->nic >= 0 && f->nic < (int)m->node[f->node].n_nics)
        hw_json_str(j, "nic", m->node[f->node].nic[f->nic].name);
    if (f->peer >= 0)
        hw_json_str(j, "peer", m->node[f->peer].name);
    if (f->ratio > 0)
        hw_json_double(j, "ratio", f->ratio);
    hw_json_bool(j, "confirmed", f->confirmed);
    hw_json_str(j, "text", text);
}

static int end_line(struct hw_json *j)
{
    hw_json_end(j);
    int rc = hw_json_finish(j);
    return rc < 0 ? hw_wrap(rc, "writing JSON lines") : 0;
}

int mesh_write(const struct mesh *m, const struct mesh_findings *f, FILE *out)
{
    struct hw_json j;
    hw_json_init(&j, out);
    hw_json_object(&j, NULL);
    write_run(&j, m);
    int rc = end_line(&j);
    for (uint32_t i = 0; i < m->n && rc == 0; i++) {
        hw_json_object(&j, NULL);
        write_node(&j, m, i);
        rc = end_line(&j);
    }
    for (size_t i = 0; i < m->n_samples && rc == 0; i++) {
        hw_json_object(&j, NULL);
        write_sample(&j, &m->sample[i], "sample");
        rc = end_line(&j);
    }
    for (size_t i = 0; i < m->n_again && rc == 0; i++) {
        hw_json_object(&j, NULL);
        write_sample(&j, &m->again[i], "again");
        rc = end_line(&j);
    }
    for (size_t i = 0; i < m->n_faults && rc == 0; i++) {
        hw_json_object(&j, NULL);
        hw_json_str(&j, "type", "failure");
        hw_json_u64(&j, "from", m->fault[i].from);
        hw_json_u64(&j, "to", m->fault[i].to);
        hw_json_u64(&j, "bad_bytes", m->fault[i].bad);
        hw_json_str(&j, "text", m->fault[i].text);
        rc = end_line(&j);
    }
    for (size_t i = 0; i < f->n && rc == 0; i++) {
        hw_json_object(&j, NULL);
        write_finding(&j, m, &f->f[i]);
        rc = end_line(&j);
    }
    return rc;
}

/* ---- reading -------------------------------------------------------------------------------------- */

static int get_text(const json_t *o, const char *key, char *to, size_t cap)
{
    const char *text = json_string_value(json_object_get(o, key));
    snprintf(to, cap, "%s", text ? text : "");
    for (char *c = to; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return hw_fail(-EINVAL, "'%s' has a control character", key);
    return 0;
}

/* Reads an integer of at most `most`; a missing integer counts as 0. */
static int get_number(const json_t *o, const char *key, uint64_t most, uint64_t *out)
{
    const json_t *v = json_object_get(o, key);
    *out = v ? (uint64_t)json_integer_value(v) : 0;
    if (v && (!json_is_integer(v) || json_integer_value(v) < 0 || *out > most))
        return hw_fail(-EINVAL, "'%s' is not a number from 0 to %llu", key, (unsigned long long)most);
    return 0;
}

static double get_real(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    double d = json_is_number(v) ? json_number_value(v) : 0;
    return d >= 0 && d < 1e12 ? d : 0;
}

static int read_run(const json_t *o, struct mesh *m)
{
    uint64_t n, v;
    const char *schema = json_string_value(json_object_get(o, "schema"));
    if (m->node)
        return hw_fail(-EINVAL, "the file contains a second run");
    if (!schema || strcmp(schema, SCHEMA) != 0)
        return hw_fail(-EINVAL, "not output of `hawser mesh --json`: its schema is not " SCHEMA);
    int rc = get_number(o, "nodes", MESH_RANKS, &n);
    if (rc == 0)
        rc = mesh_init(m, (uint32_t)n);
    if (rc == 0)
        rc = get_text(o, "date", m->date, sizeof m->date);
    if (rc == 0)
        rc = get_text(o, "what", m->what, sizeof m->what);
    if (rc == 0 && (rc = get_number(o, "rounds", MESH_RANKS, &v)) == 0)
        m->rounds = (uint32_t)v;
    if (rc == 0 && (rc = get_number(o, "of_rounds", MESH_RANKS, &v)) == 0)
        m->of_rounds = (uint32_t)v;
    if (rc == 0)
        rc = get_number(o, "checked_bytes", INT64_MAX, &m->checked);
    m->seconds = get_real(o, "seconds");
    m->bisection_GBps = get_real(o, "bisection_GBps");
    m->all_GBps = get_real(o, "all_to_all_GBps");
    return rc;
}

static int read_nic(const json_t *o, struct mesh_node *n)
{
    uint64_t speed, mtu;
    char name[HAWSER_NIC_NAME];
    int rc = get_text(o, "name", name, sizeof name);
    if (rc == 0 && (!tp_name_ok(name) || n->n_nics == TP_MAX_NICS))
        rc = hw_fail(-EINVAL, "'%s' is not a NIC's name, or there are too many NICs", name);
    if (rc < 0 || (rc = get_number(o, "Mbps", UINT32_MAX, &speed)) < 0 ||
        (rc = get_number(o, "mtu", UINT32_MAX, &mtu)) < 0)
        return rc;
    struct mesh_nic_facts *f = &n->nic[n->n_nics++];
    *f = (struct mesh_nic_facts){.speed = (uint32_t)speed, .mtu = (uint32_t)mtu};
    snprintf(f->name, sizeof f->name, "%s", name);
    rc = get_number(o, "rx_errors", INT64_MAX, &f->rx_errors);
    return rc < 0 ? rc : get_number(o, "tx_errors", INT64_MAX, &f->tx_errors);
}

static int read_node(const json_t *o, struct mesh *m)
{
    uint64_t i = 0, rank = 0;
    char state[16];
    int rc = m->n ? get_number(o, "node", m->n - 1, &i)
                  : hw_fail(-EINVAL, "a line of type node precedes the line of type run");
    if (rc < 0 || (rc = get_number(o, "rank", MESH_RANKS - 1, &rank)) < 0)
        return rc;
    struct mesh_node *n = &m->node[i];
    if (n->name[0])
        return hw_fail(-EINVAL, "node %u occurs twice", (unsigned)i);
    n->rank = (uint32_t)rank;
    if ((rc = get_text(o, "name", n->name, sizeof n->name)) < 0 ||
        (rc = get_text(o, "rack", n->rack, sizeof n->rack)) < 0 ||
        (rc = get_text(o, "hawser", n->version, sizeof n->version)) < 0 ||
        (rc = get_text(o, "why", n->why, sizeof n->why)) < 0 || (rc = get_text(o, "state", state, sizeof state)) < 0)
        return rc;
    size_t s = 0;
    while (s < HW_ARRAY_LEN(states) && strcmp(states[s], state) != 0)
        s++;
    if (!n->name[0] || s == HW_ARRAY_LEN(states))
        return hw_fail(-EINVAL, "a node has no name, or has the unknown state '%s'", state);
    n->state = (enum mesh_state)s;
    const json_t *nics = json_object_get(o, "nics"), *nic;
    size_t k;
    json_array_foreach(nics, k, nic) if ((rc = read_nic(nic, n)) < 0) return rc;
    return 0;
}

static int read_sample(const json_t *o, struct mesh *m, bool again)
{
    const char *kind = json_string_value(json_object_get(o, "kind"));
    uint64_t from = 0, to = 0, nic = MESH_ALL, to_nic = MESH_ALL;
    struct mesh_sample s = {0};
    for (unsigned k = 1; k < MESH_KINDS && kind; k++)
        if (strcmp(mesh_kind_name(k), kind) == 0)
            s.kind = (uint8_t)k;
    if (!s.kind || !m->n)
        return hw_fail(-EINVAL, "a sample has an unknown kind, or its line precedes the line of type run");
    int rc = get_number(o, "from", m->n - 1, &from);
    if (rc == 0)
        rc = get_number(o, "to", m->n - 1, &to);
    if (rc == 0 && json_object_get(o, "nic") && (rc = get_number(o, "nic", TP_MAX_NICS - 1, &nic)) == 0)
        rc = get_number(o, "to_nic", TP_MAX_NICS - 1, &to_nic);
    if (rc < 0)
        return rc;
    if (from == to || (nic != MESH_ALL && (nic >= m->node[from].n_nics || to_nic >= m->node[to].n_nics)))
        return hw_fail(-EINVAL, "a sample has the same node twice, or a NIC that its node does not have");
    s.from = (uint16_t)from;
    s.to = (uint16_t)to;
    s.nic = (uint8_t)nic;
    s.to_nic = (uint8_t)to_nic;
    s.value = (float)get_real(o, s.kind == MESH_K_LATENCY ? "us" : "GBps");
    return again ? mesh_add_again(m, &s) : mesh_add(m, &s);
}

static int read_failure(const json_t *o, struct mesh *m)
{
    uint64_t from = 0, to = 0, bad = 0;
    char text[MESH_WHY];
    int rc = m->n ? get_number(o, "from", m->n - 1, &from)
                  : hw_fail(-EINVAL, "a line of type failure precedes the line of type run");
    if (rc < 0 || (rc = get_number(o, "to", m->n - 1, &to)) < 0 ||
        (rc = get_number(o, "bad_bytes", INT64_MAX, &bad)) < 0 || (rc = get_text(o, "text", text, sizeof text)) < 0)
        return rc;
    return mesh_add_fault(m, (uint16_t)from, (uint16_t)to, bad, text);
}

static int read_line(const char *line, size_t len, struct mesh *m)
{
    json_error_t e;
    json_t *o = json_loadb(line, len, JSON_REJECT_DUPLICATES, &e);
    if (!o)
        return hw_fail(-EINVAL, "not JSON: %s", e.text);
    const char *type = json_string_value(json_object_get(o, "type"));
    int rc = !type                          ? hw_fail(-EINVAL, "not output of `hawser mesh --json`")
             : strcmp(type, "run") == 0     ? read_run(o, m)
             : strcmp(type, "node") == 0    ? read_node(o, m)
             : strcmp(type, "sample") == 0  ? read_sample(o, m, false)
             : strcmp(type, "again") == 0   ? read_sample(o, m, true)
             : strcmp(type, "failure") == 0 ? read_failure(o, m)
                                            : 0;
    json_decref(o);
    return rc;
}

int mesh_read(FILE *in, const char *path, struct mesh *m)
{
    HW_AUTO_FREE char *line = NULL;
    size_t cap = 0, n = 0;
    ssize_t len;
    int rc = 0;
    *m = (struct mesh){0};
    while (rc == 0 && (len = getline(&line, &cap, in)) > 0) {
        n++;
        rc = (size_t)len > LINE_MAX ? hw_fail(-E2BIG, "the line is longer than %u bytes", LINE_MAX)
                                    : read_line(line, (size_t)len, m);
        if (rc < 0)
            return hw_wrap(rc, "%s, line %zu", path, n);
    }
    if (ferror(in))
        return hw_fail(-EIO, "reading %s failed", path);
    for (uint32_t i = 0; i < m->n; i++)
        if (!m->node[i].name[0])
            return hw_fail(-EINVAL, "%s: node %u is missing; the nodes are numbered from 0 to %u", path, i, m->n - 1);
    return m->n ? 0 : hw_fail(-EINVAL, "%s contains no run with nodes", path);
}
