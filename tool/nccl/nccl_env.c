/* SPDX-License-Identifier: Apache-2.0 */
/* hawser nccl env: prints what to export, either as shell lines with comments that give the reasons, or as JSON. */
#include "mem/cuda.h"
#include "nccl/params.h"
#include "net/sysfs.h"
#include "node/plan.h"
#include "sys/json.h"
#include "tool/nccl/nccl.h"
#include "tool/nccl/nccl_look.h"
#include "tool/opts.h"

#include <stdlib.h>
#include <string.h>

#define CMD     "nccl env"
#define EXPORTS 4
#define MAX_GPU 64

struct export
{
    const char *name;
    char value[NCCL_PATH];
    char why[384];
    bool front; /* prepend to the current value of the variable */
};

struct env {
    struct export e[EXPORTS];
    size_t n;
    struct nccl_conflict c[NCCL_CONFLICTS];
    size_t n_conflicts;
    char missing[HW_ERR_TEXT]; /* why the plugin was not found; "" if it was found */
};

static struct export *add_env_export(struct env *v, const char *name, const char *value)
{
    struct export *e = &v->e[v->n++];
    e->name = name;
    snprintf(e->value, sizeof e->value, "%s", value);
    return e;
}

#define WHY(e, ...) snprintf((e)->why, sizeof(e)->why, __VA_ARGS__)

/* ---- NICs ------------------------------------------------------------------------------------- */

static void append_nic_name(char text[NCCL_NICS], const char *name)
{
    size_t at = strlen(text);
    if (at + 1 + strlen(name) < NCCL_NICS) /* do not truncate: a partial name could be that of another NIC */
        snprintf(text + at, NCCL_NICS - at, "%s%s", at ? "," : "", name);
}

bool nccl_nics(const struct hw_node *n, const struct hw_plan *p, char list[NCCL_NICS], char left[NCCL_NICS])
{
    list[0] = left[0] = 0;
    for (size_t i = 0; i < n->n_netdev; i++) {
        const struct hw_netdev *d = &n->netdev[i];
        if (d->address && !d->loopback && strncmp(d->name, "docker", 6) != 0 && strncmp(d->name, "virbr", 5) != 0)
            append_nic_name(p->why[i] ? left : list, d->name);
    }
    return *list && *left;
}

/* Exports HAWSER_NICS if some, but not all, of the NICs that the plugin would use serve no GPU. A management NIC or a
 * much slower NIC, for example, serves none. By default, the plugin uses every NIC that has an address, except (if
 * there are others) the loopback and NICs whose names begin with docker or virbr. */
static void add_nics_export(struct env *v)
{
    struct hw_node node = {0};
    struct hw_plan plan = {0};
    struct hw_bdf cuda[MAX_GPU];
    struct hw_scan scan = {.live = true};
    char list[NCCL_NICS], left[NCCL_NICS];
    int root = hw_root_open("/"), n = hw_cuda_count();
    for (int i = 0; i < n && i < MAX_GPU; i++) {
        struct hw_gpu_info g;
        if (hw_cuda_info(i, &g) < 0 || hw_bdf_parse(g.pci, &cuda[i]) < 0)
            break;
        scan.cuda = cuda;
        scan.n_cuda = (size_t)i + 1;
    }
    if (root >= 0 && n > 0 && hw_node_scan(&node, root, &scan) == 0 &&
        hw_plan_make(&plan, &node, &(struct hw_plan_want){0}) == 0 && nccl_nics(&node, &plan, list, left))
        WHY(add_env_export(v, "HAWSER_NICS", list),
            "the NICs that serve the GPUs on this node (see hawser topo); these NICs are left out: %.256s", left);
    hw_plan_free(&plan);
    hw_node_free(&node);
    hw_close(&root);
}

/* Exports LD_LIBRARY_PATH, unless the loader already finds the plugin of dir. Looks for libnccl-net.so if dir contains
 * this file, otherwise for the plugin's own file name. */
static void add_path_export(struct env *v, const char *dir)
{
    char found[NCCL_PATH], want[NCCL_PATH], file[NCCL_PATH + 64];
    const char *name = NCCL_ANY_FILE;
    snprintf(file, sizeof file, "%s/%s", dir, name);
    if (access(file, R_OK) != 0) {
        name = NCCL_PLUGIN_FILE;
        snprintf(file, sizeof file, "%s/%s", dir, name);
    }
    struct nccl_extra *x = nccl_find(name);
    if (!x || !*x->path || !realpath(x->path, found) || !realpath(file, want) || strcmp(found, want) != 0) {
        struct export *e = add_env_export(v, "LD_LIBRARY_PATH", dir);
        WHY(e, "without this folder, the loader would find no %s, or a different one", name);
        e->front = true;
    }
    nccl_unshare(x, sizeof *x);
}

/* ---- what to export --------------------------------------------------------------------------- */

static void make_env(struct env *v)
{
    char dir[NCCL_PATH];
    nccl_conf_read();
    v->n_conflicts = nccl_conflicts(v->c);
    /* set the name, not a path, so that NCCL also finds the plugin for the tuner and for a second communicator */
    WHY(add_env_export(v, "NCCL_NET_PLUGIN", NCCL_OUR_NAME), "NCCL loads " NCCL_PLUGIN_FILE " for this name");
    for (size_t i = 0; i < v->n_conflicts; i++)
        if (strcmp(v->c[i].name, "NCCL_NET") == 0)
            WHY(add_env_export(v, "NCCL_NET", NCCL_OUR_NAME),
                "NCCL_NET is set to %.60s in %.80s, so NCCL would use no other network", v->c[i].value,
                nccl_conf_where("NCCL_NET"));
    if (nccl_plugin_dir(dir, sizeof dir) < 0)
        snprintf(v->missing, sizeof v->missing, "%s", hw_error());
    else
        add_path_export(v, dir);
    /* both variables state the user's choice of NICs, which the plugin follows */
    if (!getenv("HAWSER_NICS") && !getenv("NCCL_SOCKET_IFNAME"))
        add_nics_export(v);
}

/* Prints text in single quotes for the shell. text may contain any character, including a single quote. */
static void quote_export_value(FILE *out, const char *text)
{
    fputc('\'', out);
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", out);
        else
            fputc(*text, out);
    fputc('\'', out);
}

/* Prints text as the rest of a comment line, with '?' for newlines and other characters below 0x20. */
static void print_env_comment(FILE *out, const char *text)
{
    for (; *text; text++)
        fputc((unsigned char)*text < ' ' ? '?' : *text, out);
    fputc('\n', out);
}

static void print_shell(FILE *out, const struct env *v)
{
    fputs("# Settings for NCCL to use hawser on this node. Run eval \"$(hawser nccl env)\" on every node.\n", out);
    if (*v->missing) {
        fputs("# The plugin is not installed: ", out);
        print_env_comment(out, v->missing);
    }
    for (size_t i = 0; i < v->n; i++) {
        const struct export *e = &v->e[i];
        fputs("# ", out);
        print_env_comment(out, e->why);
        fprintf(out, "export %s=", e->name);
        quote_export_value(out, e->value);
        if (e->front)
            fprintf(out, "\"${%s:+:$%s}\"", e->name, e->name);
        fputc('\n', out);
    }
    fprintf(out, "#\n# The plugin itself sets these variables, to the same values on every rank, unless you have set "
                 "them or related ones (with HAWSER_NCCL_TUNE=0, it sets none):\n");
    for (const struct hn_param *p = hn_params; p->name; p++) {
        const char *user = hn_param_user(p);
        fprintf(out, "#   %s=%s\n#     ", p->name, p->value);
        print_env_comment(out, p->why);
        if (user || !hn_tune(NULL))
            fprintf(out, "#     not set: you have set %s\n", user ? user : "HAWSER_NCCL_TUNE");
    }
    for (size_t i = 0; i < v->n_conflicts; i++) {
        const struct nccl_conflict *c = &v->c[i];
        fprintf(out, "%s#   %s=", i ? "" : "#\n# Other variables that are set here:\n", c->name);
        print_env_comment(out, c->value ? c->value : "");
        fprintf(out, "#     ");
        print_env_comment(out, c->text);
    }
}

static int print_nccl_env_json(FILE *out, const struct env *v)
{
    static const char *const weight[] = {[NCCL_NOTE] = "note", [NCCL_CAUTION] = "caution", [NCCL_WRONG] = "wrong"};
    struct hw_json j;
    hw_json_init(&j, out);
    hw_json_object(&j, NULL);
    hw_json_str(&j, "schema", "hawser-nccl-env-1");
    hw_json_str(&j, "plugin_missing", *v->missing ? v->missing : NULL);
    hw_json_array(&j, "export");
    for (size_t i = 0; i < v->n; i++) {
        hw_json_object(&j, NULL);
        hw_json_str(&j, "name", v->e[i].name);
        hw_json_str(&j, "value", v->e[i].value);
        hw_json_bool(&j, "prepend", v->e[i].front);
        hw_json_str(&j, "why", v->e[i].why);
        hw_json_end(&j);
    }
    hw_json_end(&j);
    hw_json_bool(&j, "tune", hn_tune(NULL));
    hw_json_array(&j, "set_by_plugin");
    for (const struct hn_param *p = hn_params; p->name; p++) {
        const char *user = hn_param_user(p);
        hw_json_object(&j, NULL);
        hw_json_str(&j, "name", p->name);
        hw_json_str(&j, "value", p->value);
        hw_json_str(&j, "why", p->why);
        hw_json_str(&j, "overridden_by", user);
        hw_json_str(&j, "overridden_value", user ? getenv(user) : NULL);
        hw_json_end(&j);
    }
    hw_json_end(&j);
    hw_json_array(&j, "conflicts");
    for (size_t i = 0; i < v->n_conflicts; i++) {
        hw_json_object(&j, NULL);
        hw_json_str(&j, "name", v->c[i].name);
        hw_json_str(&j, "value", v->c[i].value);
        hw_json_str(&j, "from", nccl_conf_where(v->c[i].name));
        hw_json_str(&j, "weight", weight[v->c[i].weight]);
        hw_json_str(&j, "text", v->c[i].text);
        hw_json_str(&j, "mend", *v->c[i].mend ? v->c[i].mend : NULL);
        hw_json_end(&j);
    }
    hw_json_end(&j);
    hw_json_end(&j);
    int rc = hw_json_finish(&j);
    return rc < 0 ? hw_wrap(rc, "writing the JSON") : 0;
}

struct env_args {
    bool json;
};

int nccl_env_main(int argc, char **argv)
{
    static const struct opt rows[] = {
        OPT_FLAG("json", 'j', struct env_args, json, "print one JSON object instead of shell lines"), {0}};
    static const struct opts o = {
        .cmd = CMD,
        .args = "[OPTION...]",
        .about = "Prints what to export so that NCCL uses hawser, as shell lines for eval. Comments give the reasons, "
                 "what the plugin sets by itself, and what in this environment conflicts with the plugin.",
        .rows = rows,
        .too_many = "env takes options only"};
    struct env_args a = {0};
    int rc = opts_parse(&o, &a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    struct env *v = calloc(1, sizeof *v);
    if (!v)
        return tool_fail(CMD, "out of memory");
    make_env(v);
    rc = 0;
    if (a.json)
        rc = print_nccl_env_json(stdout, v);
    else
        print_shell(stdout, v);
    /* settings are useless without the plugin, so report an error */
    rc = rc < 0 ? tool_fail(CMD, "%s", hw_error()) : *v->missing ? tool_fail(CMD, "%s", v->missing) : TOOL_OK;
    free(v);
    return rc;
}
