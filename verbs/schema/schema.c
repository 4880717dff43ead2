/* SPDX-License-Identifier: Apache-2.0 */
/* Looks up commands, drivers and names of types in the tables of the schema. */
#include "verbs/schema/schema_int.h"

static const struct vb_commands *const tables[] = {&vb_write_commands, &vb_method_commands};

const struct vb_command *vb_schema_at(unsigned i)
{
    for (unsigned t = 0; t < HW_ARRAY_LEN(tables); t++) {
        if (i < tables[t]->n)
            return &tables[t]->c[i];
        i -= tables[t]->n;
    }
    return NULL;
}

const struct vb_command *vb_schema(uint16_t object, uint16_t method, uint32_t command)
{
    bool write = object == UVERBS_OBJECT_DEVICE && method == UVERBS_METHOD_INVOKE_WRITE;
    const struct vb_commands *t = write ? &vb_write_commands : &vb_method_commands;

    for (unsigned i = 0; i < t->n; i++)
        if (t->c[i].object == object && t->c[i].method == method && (!write || t->c[i].command == command))
            return &t->c[i];
    return NULL;
}

const struct vb_driver *vb_driver_at(unsigned i)
{
    return i < vb_n_drivers ? &vb_drivers[i] : NULL;
}

const struct vb_driver *vb_driver(uint32_t id)
{
    for (unsigned i = 0; i < vb_n_drivers; i++)
        if (vb_drivers[i].id == id)
            return &vb_drivers[i];
    return NULL;
}

const struct vb_driver_part *vb_driver_part(const struct vb_driver *d, const struct vb_command *c)
{
    for (unsigned i = 0; i < d->n_parts; i++)
        if (d->parts[i].object == c->object && d->parts[i].method == c->method && d->parts[i].command == c->command)
            return &d->parts[i];
    return NULL;
}

const char *vb_type_name(enum vb_type t)
{
    static const char *const names[VB_TYPES] = {
        [VB_NONE] = "none",   [VB_CONTEXT] = "context",
        [VB_PD] = "pd",       [VB_MR] = "mr",
        [VB_MW] = "mw",       [VB_CQ] = "cq",
        [VB_QP] = "qp",       [VB_SRQ] = "srq",
        [VB_AH] = "ah",       [VB_CHANNEL] = "channel",
        [VB_XRCD] = "xrcd",   [VB_WQ] = "wq",
        [VB_FLOW] = "flow",   [VB_RWQ_TABLE] = "rwq_table",
        [VB_DM] = "dm",       [VB_COUNTERS] = "counters",
        [VB_ASYNC] = "async",
    };

    return (unsigned)t < VB_TYPES ? names[t] : "?";
}
