/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/mesh/data/mesh.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ROOM 1024 /* initial capacity of a list */

int mesh_init(struct mesh *m, uint32_t n)
{
    *m = (struct mesh){.n = n};
    m->node = calloc(n ? n : 1, sizeof *m->node);
    return m->node ? 0 : hw_no_memory("%u nodes", n);
}

void mesh_free(struct mesh *m)
{
    free(m->node);
    free(m->sample);
    free(m->again);
    free(m->fault);
    *m = (struct mesh){0};
}

int mesh_grow(void *list, size_t n, size_t *cap, size_t size, const char *what)
{
    void *at;
    if (n < *cap)
        return 0;
    size_t more = HW_MAX(2 * *cap, (size_t)ROOM);
    memcpy(&at, list, sizeof at);
    at = realloc(at, more * size);
    if (!at)
        return hw_no_memory("%zu %s", more, what);
    memcpy(list, &at, sizeof at);
    *cap = more;
    return 0;
}

static int add_sample(struct mesh_sample **list, size_t *n, size_t *cap, const struct mesh_sample *s)
{
    if (*n >= MESH_SAMPLES)
        return hw_fail(-E2BIG, "too many results: at most %d", MESH_SAMPLES);
    int rc = mesh_grow(list, *n, cap, sizeof **list, "results");
    if (rc == 0)
        (*list)[(*n)++] = *s;
    return rc;
}

int mesh_add(struct mesh *m, const struct mesh_sample *s)
{
    return add_sample(&m->sample, &m->n_samples, &m->cap_samples, s);
}

int mesh_add_again(struct mesh *m, const struct mesh_sample *s)
{
    return add_sample(&m->again, &m->n_again, &m->cap_again, s);
}

int mesh_add_fault(struct mesh *m, uint16_t from, uint16_t to, uint64_t bad, const char *text)
{
    int rc = mesh_grow(&m->fault, m->n_faults, &m->cap_faults, sizeof *m->fault, "failures");
    if (rc < 0)
        return rc;
    struct mesh_fault *f = &m->fault[m->n_faults++];
    *f = (struct mesh_fault){.from = from, .to = to, .bad = bad};
    snprintf(f->text, sizeof f->text, "%s", text);
    return 0;
}

uint8_t mesh_nic(struct mesh_node *node, const char *name)
{
    for (uint32_t i = 0; i < node->n_nics; i++)
        if (strcmp(node->nic[i].name, name) == 0)
            return (uint8_t)i;
    if (node->n_nics == TP_MAX_NICS)
        return MESH_ALL;
    struct mesh_nic_facts *f = &node->nic[node->n_nics];
    *f = (struct mesh_nic_facts){0};
    snprintf(f->name, sizeof f->name, "%s", name);
    return (uint8_t)node->n_nics++;
}

const char *mesh_kind_name(enum mesh_kind kind)
{
    static const char *const names[MESH_KINDS] = {[MESH_K_LATENCY] = "latency",
                                                  [MESH_K_WAY] = "one way",
                                                  [MESH_K_BOTH] = "both ways",
                                                  [MESH_K_RAIL] = "rail",
                                                  [MESH_K_LOAD] = "all to all"};
    return kind < MESH_KINDS && names[kind] ? names[kind] : "?";
}
