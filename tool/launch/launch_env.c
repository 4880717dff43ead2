/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/launch/launch_env.h"

#include "base/size.h"
#include "tool/common.h"

#include <string.h>

/* ---- lists of hosts --------------------------------------------------------------------------- */

struct list {
    char **name;
    uint32_t n;
};

static int add_name(struct list *l, const char *name)
{
    if (l->n == LAUNCH_RANKS)
        return hw_fail(-E2BIG, "too many hosts: at most %d", LAUNCH_RANKS);
    if (!*name || strlen(name) >= LAUNCH_NAME)
        return hw_fail(-EINVAL, "'%s' is not a host name", name);
    char **more = realloc(l->name, (l->n + 1) * sizeof *more);
    if (!more)
        return hw_no_memory("names of hosts");
    l->name = more;
    l->name[l->n] = strdup(name);
    return l->name[l->n] ? (l->n++, 0) : hw_no_memory("names of hosts");
}

/* Parses one number or range within brackets, of len characters. Stores the number of digits of the first number,
 * including leading zeros, in *width. */
static int parse_range(const char *text, size_t len, uint64_t *first, uint64_t *last, int *width)
{
    char word[64];
    if (len >= sizeof word || len == 0)
        return hw_fail(-EINVAL, "'%.*s' is not a range of hosts", (int)len, text);
    memcpy(word, text, len);
    word[len] = 0;
    char *dash = strchr(word, '-');
    if (dash)
        *dash++ = 0;
    *width = (int)strlen(word);
    int rc = hw_parse_u64(word, 0, UINT32_MAX, first);
    *last = *first;
    if (rc == 0 && dash)
        rc = hw_parse_u64(dash, 0, UINT32_MAX, last);
    return rc == 0 && *first > *last ? hw_fail(-EINVAL, "the range %s-%s must be ascending", word, dash) : rc;
}

/* Adds all names of one item. done is the part that is already expanded; text is the rest and may contain brackets. */
static int expand_item(struct list *l, const char *done, const char *text)
{
    char name[2 * LAUNCH_NAME];
    const char *open = strchr(text, '['), *close = open ? strchr(open, ']') : NULL;
    if (!open) {
        int k = snprintf(name, sizeof name, "%s%s", done, text);
        return k >= (int)sizeof name ? hw_fail(-EINVAL, "'%s%s' is not a host name", done, text) : add_name(l, name);
    }
    if (!close)
        return hw_fail(-EINVAL, "'%s' has an unclosed bracket", text);
    for (const char *at = open + 1, *end; at <= close; at = end + 1) {
        uint64_t first, last;
        int width = 1, rc;
        end = at + strcspn(at, ",]");
        rc = parse_range(at, (size_t)(end - at), &first, &last, &width);
        for (uint64_t v = first; rc == 0 && v <= last; v++) {
            int k = snprintf(name, sizeof name, "%s%.*s%0*llu", done, (int)(open - text), text, width,
                             (unsigned long long)v);
            rc = k >= LAUNCH_NAME ? hw_fail(-EINVAL, "'%s' is not a host name", name) : expand_item(l, name, close + 1);
        }
        if (rc < 0)
            return rc;
    }
    return 0;
}

int launch_nodelist(const char *text, char ***names, uint32_t *n)
{
    struct list l = {0};
    HW_AUTO_FREE char *copy = strdup(text);
    int rc = copy ? 0 : hw_no_memory("names of hosts");
    for (char *at, *item = copy; rc == 0 && item; item = at) {
        bool inside = false;
        for (at = item; *at && (inside || *at != ','); at++)
            inside = *at == '[' || (inside && *at != ']');
        bool more = *at == ',';
        *at = 0;
        rc = expand_item(&l, "", item);
        at = more ? at + 1 : NULL;
    }
    if (rc < 0) {
        HW_KEEP_ERROR();
        launch_names_free(l.name, l.n);
        return rc;
    }
    *names = l.name;
    *n = l.n;
    return 0;
}

void launch_names_free(char **names, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

/* ---- variables -------------------------------------------------------------------------------- */

static const char *get(const char *const *vars, const char *name)
{
    size_t len = strlen(name);
    for (; *vars; vars++)
        if (strncmp(*vars, name, len) == 0 && (*vars)[len] == '=' && (*vars)[len + 1])
            return *vars + len + 1;
    return NULL;
}

static int get_number(const char *const *vars, const char *name, uint64_t min, uint64_t max, uint32_t *out)
{
    uint64_t v;
    const char *text = get(vars, name);
    if (!text)
        return hw_fail(-EINVAL, "%s is not set, or is empty", name);
    int rc = hw_parse_u64(text, min, max, &v);
    if (rc < 0)
        return hw_wrap(rc, "%s", name);
    *out = (uint32_t)v;
    return 0;
}

static int get_rank(const char *const *vars, const char *rank, const char *size, struct launch_seat *out)
{
    int rc = get_number(vars, size, 1, LAUNCH_RANKS, &out->size);
    return rc < 0 ? rc : get_number(vars, rank, 0, out->size - 1, &out->rank);
}

/* Derives the first of the ports at which a job's ranks meet, so that jobs with different names usually use different
 * ports. */
static uint16_t choose_port(const char *job, const char *step)
{
    uint64_t h = hw_hash(HW_HASH_START, job, strlen(job));
    h = hw_hash(h, step, strlen(step));
    return (uint16_t)(LAUNCH_PORT + h % 512 * LAUNCH_PORTS);
}

static void copy_text(char *to, size_t cap, const char *text)
{
    snprintf(to, cap, "%s", text ? text : "");
}

static int read_own(const char *const *vars, struct launch_seat *out)
{
    const char *meet = get(vars, "HAWSER_MESH_MEET");
    out->launcher = "hawser";
    int rc = get_rank(vars, "HAWSER_MESH_RANK", "HAWSER_MESH_SIZE", out);
    if (rc < 0)
        return rc;
    const char *names = get(vars, "HAWSER_MESH_NAMES");
    rc = names ? launch_nodelist(names, &out->names, &out->n_names) : 0;
    if (rc < 0)
        return hw_wrap(rc, "HAWSER_MESH_NAMES");
    if (names && out->n_names != out->size)
        return hw_fail(-EINVAL, "HAWSER_MESH_NAMES must list exactly HAWSER_MESH_SIZE (%u) names", out->size);
    return meet ? 0 : hw_fail(-EINVAL, "HAWSER_MESH_RANK is set, but HAWSER_MESH_MEET (HOST[:PORT] of rank 0) is not");
}

static int read_openmpi(const char *const *vars, struct launch_seat *out)
{
    const char *job = get(vars, "PMIX_NAMESPACE"), *local = get(vars, "OMPI_COMM_WORLD_LOCAL_SIZE");
    const char *size = get(vars, "OMPI_COMM_WORLD_SIZE");
    out->launcher = "openmpi";
    if (job)
        out->port = choose_port(job, "");
    if (local && size && strcmp(local, size) == 0)
        copy_text(out->meet, sizeof out->meet, "127.0.0.1"); /* all ranks are on this host */
    return get_rank(vars, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", out);
}

static int read_torchrun(const char *const *vars, struct launch_seat *out)
{
    const char *host = get(vars, "MASTER_ADDR"), *job = get(vars, "TORCHELASTIC_RUN_ID"),
               *port = get(vars, "MASTER_PORT");
    out->launcher = "torchrun";
    copy_text(out->meet, sizeof out->meet, host);
    out->port = choose_port(job ? job : "", port ? port : ""); /* MASTER_PORT itself is used by torch's store */
    return get_rank(vars, "RANK", "WORLD_SIZE", out);
}

/* SLURM_TOPOLOGY_ADDR is "spine0.leaf3.node12" if a topology plugin knows the network, and otherwise only the node's
 * name. */
static void read_slurm_rack(const char *const *vars, struct launch_seat *out)
{
    const char *addr = get(vars, "SLURM_TOPOLOGY_ADDR"), *dot = addr ? strrchr(addr, '.') : NULL;
    if (dot && dot - addr < LAUNCH_NAME)
        snprintf(out->rack, sizeof out->rack, "%.*s", (int)(dot - addr), addr);
}

static int read_slurm(const char *const *vars, struct launch_seat *out)
{
    const char *job = get(vars, "SLURM_JOB_ID"), *step = get(vars, "SLURM_STEP_ID");
    const char *list = get(vars, "SLURM_STEP_NODELIST");
    out->launcher = "slurm";
    if (!list)
        list = get(vars, "SLURM_JOB_NODELIST");
    if (!list)
        return hw_fail(
            -EINVAL,
            "SLURM_PROCID is set, but neither SLURM_STEP_NODELIST nor SLURM_JOB_NODELIST is: launch hawser with srun");
    int rc = get_rank(vars, "SLURM_PROCID", get(vars, "SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS",
                      out);
    if (rc < 0)
        return rc;
    rc = launch_nodelist(list, &out->names, &out->n_names);
    if (rc < 0)
        return hw_wrap(rc, "SLURM's list of nodes");
    copy_text(out->meet, sizeof out->meet, out->n_names ? out->names[0] : NULL);
    copy_text(out->name, sizeof out->name, get(vars, "SLURMD_NODENAME"));
    out->port = choose_port(job ? job : "", step ? step : "");
    read_slurm_rack(vars, out);
    if (out->n_names != out->size) { /* with several ranks on a node, SLURM does not report each rank's node */
        launch_names_free(out->names, out->n_names);
        out->names = NULL;
        out->n_names = 0;
    }
    return 0;
}

static int read_pmix(const char *const *vars, struct launch_seat *out)
{
    out->launcher = "pmix";
    out->port = choose_port(get(vars, "PMIX_NAMESPACE"), "");
    out->size = 0; /* PMIx provides the size */
    return get_number(vars, "PMIX_RANK", 0, LAUNCH_RANKS - 1, &out->rank);
}

static int read_launcher(const char *const *vars, struct launch_seat *out)
{
    if (get(vars, "HAWSER_MESH_RANK"))
        return read_own(vars, out);
    if (get(vars, "OMPI_COMM_WORLD_RANK"))
        return read_openmpi(vars, out);
    if (get(vars, "RANK") && get(vars, "WORLD_SIZE") && get(vars, "MASTER_ADDR"))
        return read_torchrun(vars, out);
    if (get(vars, "SLURM_PROCID"))
        return read_slurm(vars, out);
    if (get(vars, "PMIX_RANK") && get(vars, "PMIX_NAMESPACE"))
        return read_pmix(vars, out);
    return hw_fail(
        -ENOENT,
        "no launcher started this process: start it with mpirun, srun or torchrun on every node, or use --hosts FILE");
}

int launch_env(const char *const *vars, struct launch_seat *out)
{
    const char *meet = get(vars, "HAWSER_MESH_MEET"), *name = get(vars, "HAWSER_MESH_NAME");
    const char *rack = get(vars, "HAWSER_MESH_RACK");
    *out = (struct launch_seat){.port = LAUNCH_PORT};
    int rc = read_launcher(vars, out);
    if (rc == 0 && meet)
        rc = opts_host(meet, out->meet, sizeof out->meet, &out->port);
    if (name)
        copy_text(out->name, sizeof out->name, name);
    if (rack)
        copy_text(out->rack, sizeof out->rack, rack);
    return rc;
}

void launch_seat_free(struct launch_seat *s)
{
    launch_names_free(s->names, s->n_names);
    *s = (struct launch_seat){0};
}
