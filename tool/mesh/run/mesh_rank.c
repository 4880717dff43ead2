/* SPDX-License-Identifier: Apache-2.0 */
/* A rank: serves the other ranks, and measures with them as the lead orders. */
#include "tool/mesh/run/mesh_run.h"

#include "net/sysfs.h"
#include "tool/mesh/run/mesh_measure.h"
#include "tool/peer/reach.h"
#include "tool/serve/service.h"

#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define POLL_MS    250
#define TELL_MS    10000
#define EVENTS     16
#define MAX_MEMORY (8ull << 30)

struct rank {
    const struct mesh_options *o;
    const struct launch_seat *seat;
    struct common common, control;
    hawser *data, *talk;
    hawser_peer *lead;
    struct mesh_hello hello;
    struct mesh_link link;
    pthread_t service;
    bool serves, done;
};

/* ---- this node ---------------------------------------------------------------------------------- */

static uint64_t read_errors(int root, const char *nic, const char *which)
{
    uint64_t v = 0;
    HW_KEEP_ERROR();
    return hw_root_u64(root, &v, "sys/class/net/%s/statistics/%s", nic, which) == 0 ? v : 0;
}

/* Lists the NICs that reach_facts() reports, each once. If before is not NULL, counts only the errors since
 * `before`. */
static int list_nics(struct mesh_hello *h, const struct mesh_hello *before)
{
    HW_AUTO_FREE struct tp_facts *f = calloc(1, sizeof *f);
    HW_AUTO_CLOSE int root = hw_root_open("/");
    if (!f)
        return hw_no_memory("a list of NICs");
    int rc = root < 0 ? root : reach_facts(root, f);
    memcpy(h->boot, f->boot, sizeof h->boot);
    h->n_nics = 0;
    for (uint32_t i = 0; rc == 0 && i < f->n_nics; i++) {
        bool there = false;
        for (uint32_t k = 0; k < h->n_nics; k++)
            there |= strcmp(h->nic[k].name, f->nic[i].nic) == 0;
        if (there)
            continue;
        struct mesh_nic_facts *n = &h->nic[h->n_nics++];
        *n = (struct mesh_nic_facts){.speed = f->nic[i].speed, .mtu = f->nic[i].mtu};
        snprintf(n->name, sizeof n->name, "%s", f->nic[i].nic);
        n->rx_errors = read_errors(root, n->name, "rx_errors");
        n->tx_errors = read_errors(root, n->name, "tx_errors");
        for (uint32_t k = 0; before && k < before->n_nics; k++)
            if (strcmp(before->nic[k].name, n->name) == 0) {
                n->rx_errors -= HW_MIN(n->rx_errors, before->nic[k].rx_errors);
                n->tx_errors -= HW_MIN(n->tx_errors, before->nic[k].tx_errors);
            }
    }
    return rc;
}

static int describe_self(struct rank *k)
{
    struct mesh_hello *h = &k->hello;
    struct stat st;
    char name[MESH_NAME] = "";
    h->rank = k->seat->rank;
    h->size = k->seat->size;
    if (gethostname(name, sizeof name - 1) < 0 || !*name)
        snprintf(name, sizeof name, "rank%u", h->rank);
    name[strcspn(name, ".")] = 0;
    snprintf(h->name, sizeof h->name, "%s", k->seat->name[0] ? k->seat->name : name);
    snprintf(h->rack, sizeof h->rack, "%s", k->seat->rack);
    snprintf(h->version, sizeof h->version, "%s", hawser_version());
    h->netns = stat("/proc/self/ns/net", &st) == 0 ? (uint64_t)st.st_ino : 0;
    return list_nics(h, NULL);
}

/* ---- contexts ------------------------------------------------------------------------------------- */

static int open_data(struct rank *k)
{
    int rc = launch_copy_common(&k->o->common, k->o->deadline_ms, &k->common);
    for (size_t i = 0; i < k->o->common.n_knobs && rc == 0; i++)
        rc = common_knob(&k->common, k->o->common.knobs[i], NULL);
    if (rc == 0)
        rc = common_open(&k->common, &k->data);
    return rc < 0 ? rc : hawser_listen(k->data, NULL, 0, &k->hello.port);
}

static void *service_main(void *arg)
{
    struct rank *k = arg;
    const struct service_options so = {
        .cmd = "mesh", .max_memory = MAX_MEMORY, .limit_name = "the fixed limit of a mesh rank", .quiet = true};
    struct service_summary sum;
    if (service_run(k->data, &so, &sum) < 0)
        tool_fail("mesh", "%s: %s", k->hello.name, hw_error());
    return NULL;
}

int mesh_tell(hawser_peer *p, const struct mesh_message *m, int wait_ms)
{
    uint8_t buf[MESH_MESSAGE];
    hawser_op *op = NULL;
    const struct session none = {0}; /* lets a signal end the wait */
    const struct hawser_op_options opts = {.size = sizeof opts, .timeout_ms = wait_ms ? wait_ms : TELL_MS};
    int len = mesh_encode(m, buf);
    int rc = len < 0 ? len : hawser_notify(p, buf, (size_t)len, &opts, wait_ms ? &op : NULL);
    return rc < 0 || !wait_ms ? rc : session_await(&none, op, wait_ms);
}

/* ---- meeting -------------------------------------------------------------------------------------- */

static int say_hello(struct rank *k)
{
    struct session_path path[1];
    struct session s = {.h = k->talk, .peer = k->lead};
    HW_AUTO_FREE struct mesh_message *m = calloc(1, sizeof *m);
    if (!m)
        return hw_no_memory("a message");
    if (session_paths(&s, path, 1) == 0)
        return hw_fail(-ECONNRESET, "the connection to rank 0 is lost");
    snprintf(k->hello.addr, sizeof k->hello.addr, "%s", path[0].local);
    m->type = MESH_HELLO;
    m->hello = k->hello;
    return mesh_tell(k->lead, m, TELL_MS);
}

/* ---- orders --------------------------------------------------------------------------------------- */

static int carry_out_order(struct rank *k, const struct mesh_order *o)
{
    HW_AUTO_FREE struct mesh_message *m = calloc(1, sizeof *m);
    if (!m)
        return hw_no_memory("a message");
    m->type = MESH_ANSWER;
    mesh_measure(k->data, &k->link, o, &m->answer);
    return mesh_tell(k->lead, m, 0);
}

static int take_leave(struct rank *k)
{
    HW_AUTO_FREE struct mesh_message *m = calloc(1, sizeof *m);
    if (!m)
        return hw_no_memory("a message");
    m->type = MESH_FINAL;
    mesh_link_close(&k->link);
    int rc = list_nics(&m->hello, &k->hello);
    k->done = true;
    return rc < 0 ? rc : mesh_tell(k->lead, m, TELL_MS);
}

static int handle_event(struct rank *k, const struct hawser_completion *c)
{
    HW_AUTO_FREE struct mesh_message *m = NULL;
    int rc = 0;
    if (c->event == HAWSER_DIED && !k->done)
        return hw_fail(-ECONNRESET, "the connection to rank 0 is lost");
    if (c->event == HAWSER_ENDED && c->result < 0 && !k->done)
        return hw_fail(c->result, "reporting to rank 0 failed: %s", hw_errno_name(-c->result));
    if (c->event != HAWSER_NOTIFIED)
        return 0;
    m = calloc(1, sizeof *m);
    rc = m ? mesh_decode(c->data, c->length, m) : hw_no_memory("a message");
    hawser_data_free(c->data);
    if (rc == 0 && m->type == MESH_ORDER)
        rc = carry_out_order(k, &m->order);
    else if (rc == 0 && m->type == MESH_BYE)
        rc = take_leave(k);
    return rc;
}

static int obey(struct rank *k)
{
    struct hawser_completion c[EVENTS];
    int rc = 0;
    while (rc == 0 && !k->done) {
        if (tool_stop)
            return hw_fail(-EINTR, "interrupted");
        int n = hawser_poll_wait(k->talk, c, EVENTS, POLL_MS);
        rc = HW_MIN(n, 0);
        for (int i = 0; i < n && rc == 0; i++)
            rc = handle_event(k, &c[i]);
    }
    return rc;
}

static int live(struct rank *k, const struct launch_place *place)
{
    int rc = open_data(k);
    if (rc == 0)
        rc = describe_self(k);
    if (rc == 0)
        rc = launch_open(&k->o->common, k->o->deadline_ms, &k->control, &k->talk);
    if (rc < 0)
        return rc;
    int e = pthread_create(&k->service, NULL, service_main, k);
    k->serves = e == 0;
    if (e)
        return hw_fail(-e, "starting a thread: %s", hw_errno_name(e));
    rc = launch_find(k->talk, place, k->o->wait_ms, &k->lead);
    if (rc == 0)
        rc = say_hello(k);
    return rc < 0 ? rc : obey(k);
}

int mesh_rank(const struct mesh_options *o, const struct launch_seat *seat, const struct launch_place *place)
{
    struct rank *k = calloc(1, sizeof *k);
    if (!k)
        return tool_fail("mesh", "out of memory");
    k->o = o;
    k->seat = seat;
    int rc = live(k, place), code = TOOL_OK;
    if (rc < 0) {
        (void)tool_fail("mesh", *k->hello.name ? "%s (rank %u): %s" : "%srank %u: %s", k->hello.name, seat->rank,
                        hw_error());
        code = TOOL_USAGE; /* the exit code of mesh if it could not run */
    }
    mesh_link_close(&k->link);
    tool_stop = 1; /* stops the service */
    if (k->serves)
        pthread_join(k->service, NULL);
    hawser_peer_close(k->lead);
    hawser_close(k->talk);
    hawser_close(k->data);
    common_free(&k->common);
    common_free(&k->control);
    free(k);
    return code;
}
