/* SPDX-License-Identifier: Apache-2.0 */
/* The first two parts of a field test: the inventories of both nodes, and the reports of `hawser doctor`. */
#include "net/sysfs.h"
#include "tool/field/field.h"
#include "tool/field/inventory.h"
#include "tool/peer/session.h"
#include "tool/report/output.h"

#include <stdlib.h>
#include <string.h>

#define DEEPEST 8 /* maximum nesting depth of an inventory */

/* ---- inventory --------------------------------------------------------------------------------------- */

static int ask_inventory(struct session *s, char **text, size_t *len)
{
    HW_AUTO_FREE struct tp_reply *r = calloc(1, sizeof *r);
    if (!r)
        return hw_no_memory("the inventory");
    *text = NULL;
    *len = 0;
    do {
        struct tp_request q = {.type = TP_INVENTORY, .first = *len};
        int rc = session_call(s, &q, r, SESSION_CALL_MS);
        if (rc < 0)
            return rc;
        char *more = realloc(*text, *len + r->n_piece + 1);
        if (!more || r->n_piece == 0)
            return more ? hw_fail(-EPROTO, "the serving node sent an empty part of its inventory")
                        : hw_no_memory("the inventory");
        memcpy(more + *len, r->piece, r->n_piece);
        *text = more;
        *len += r->n_piece;
    } while (*len < r->whole);
    return 0;
}

/* Returns the nesting depth of objects and arrays. The peer's text may be nested as deeply as jansson allows. */
static unsigned measure_depth(const json_t *v)
{
    const char *key;
    json_t *item;
    size_t i;
    unsigned most = 0;
    if (json_is_object(v)) {
        json_object_foreach((json_t *)v, key, item) most = HW_MAX(most, measure_depth(item) + 1);
    } else if (json_is_array(v)) {
        json_array_foreach(v, i, item) most = HW_MAX(most, measure_depth(item) + 1);
    }
    return most;
}

/* Copies the counts of doctor's report, and its warnings and failures, to doc. */
static void keep_doctor(struct field *f, const char *of, const json_t *report)
{
    static const char *const counts[] = {"passed", "warnings", "failed", "skipped", NULL};
    static const char *const keys[] = {"id", "outcome", "subject", "found", NULL};
    json_t *kept = field_pick(report, counts), *checks = json_array(), *c;
    size_t i;
    json_array_foreach(json_object_get(report, "checks"), i, c)
    {
        const char *outcome = json_string_value(json_object_get(c, "outcome"));
        if (outcome && (strcmp(outcome, "WARN") == 0 || strcmp(outcome, "FAIL") == 0))
            json_array_append_new(checks, field_pick(c, keys));
    }
    json_object_set_new(kept, "checks", checks);
    json_object_set_new(json_object_get(f->doc, "doctor"), of, kept);
}

/* Adds an inventory, or null if it is missing or invalid, to the nodes of doc. Moves the peer's doctor report to the
 * doctor part of doc, and drops this node's. */
static void keep_inventory(struct field *f, const char *side, const char *text, size_t len)
{
    json_t *node = text ? json_loadb(text, len, 0, NULL) : NULL;
    if (!json_is_object(node) || measure_depth(node) > DEEPEST) {
        json_decref(node);
        node = json_null();
    }
    json_t *doctor = json_object_get(node, "doctor");
    if (doctor && strcmp(side, "there") == 0)
        keep_doctor(f, side, doctor);
    json_object_del(node, "doctor");
    json_object_set_new(json_object_get(f->doc, "nodes"), side, node);
}

static void list_nics(struct field *f, struct session *s)
{
    struct session_path path[TP_MAX_PATHS];
    const size_t n = session_paths(s, path, TP_MAX_PATHS);
    json_t *pairs = json_object_get(f->doc, "paths");
    for (size_t i = 0; i < n; i++) {
        bool known = false;
        for (size_t k = 0; k < f->n_nics; k++)
            known |= strcmp(f->nic[k], path[i].nic) == 0;
        if (!known && f->n_nics < FIELD_NICS)
            memcpy(f->nic[f->n_nics++], path[i].nic, sizeof path[i].nic);
        json_array_append_new(pairs, json_pack("{s:s,s:s,s:s,s:s}", "nic", path[i].nic, "peer_nic", path[i].peer_nic,
                                               "local", path[i].local, "remote", path[i].remote));
    }
}

int field_inventory(struct field *f)
{
    struct session s = {0};
    hawser *h = NULL;
    HW_AUTO_FREE char *here = NULL, *there = NULL;
    size_t len = 0;
    output_progress("inventory");
    int rc = common_open(&f->common, &h);
    if (rc == 0)
        rc = session_open(&s, h, f->host, f->port, NULL);
    if (rc == 0) {
        list_nics(f, &s);
        if (ask_inventory(&s, &there, &len) < 0)
            field_failed(f, FIELD_INVENTORY, "the peer's inventory: %s", hw_error());
        keep_inventory(f, "there", there, len);
        session_close(&s);
    }
    HW_KEEP_ERROR();
    hawser_close(h);
    if (rc < 0)
        return rc;
    HW_AUTO_CLOSE int root = hw_root_open("/");
    if (root < 0 || inventory_make(root, &here, &len) < 0)
        field_failed(f, FIELD_INVENTORY, "this node's inventory: %s", hw_error());
    keep_inventory(f, "here", here, len);
    f->part[FIELD_INVENTORY].done++;
    return 0;
}

/* ---- doctor ---------------------------------------------------------------------------------------------- */

static void examine(struct field *f, const char *of)
{
    struct field_args a = {0};
    struct field_result r;
    const uint64_t ms = field_begin(f, FIELD_DOCTOR, 1, "doctor", NULL);
    if (!ms)
        return;
    if (strcmp(of, "pair") == 0) {
        field_command(f, &a, "doctor");
    } else {
        field_arg(&a, "hawser");
        field_arg(&a, "doctor");
    }
    field_arg(&a, "--json");
    if (field_run(&a, ms, &r) < 0)
        field_failed(f, FIELD_DOCTOR, "%s: %s", of, hw_error());
    else if (!json_is_object(json_array_get(r.rows, 0)))
        field_child_failed(f, FIELD_DOCTOR, of, &r);
    else
        keep_doctor(f, of, json_array_get(r.rows, 0));
    f->part[FIELD_DOCTOR].done++;
    json_decref(r.rows);
}

/* Adds every failed check of both nodes and of the pair to the findings. */
static void judge_doctor(struct field *f)
{
    const char *of;
    json_t *report, *c;
    size_t i;
    json_object_foreach(json_object_get(f->doc, "doctor"), of, report)
    {
        json_array_foreach(json_object_get(report, "checks"), i, c)
        {
            const char *id = json_string_value(json_object_get(c, "id"));
            const char *outcome = json_string_value(json_object_get(c, "outcome"));
            const char *subject = json_string_value(json_object_get(c, "subject"));
            const char *found = json_string_value(json_object_get(c, "found"));
            if (id && found && outcome && strcmp(outcome, "FAIL") == 0)
                field_wrong(f, FIELD_DOCTOR, "%s, %s%s%s: %s", of, id, subject ? " " : "", subject ? subject : "",
                            found);
        }
    }
}

void field_doctor(struct field *f)
{
    examine(f, "here");
    examine(f, "pair");
    judge_doctor(f);
}
