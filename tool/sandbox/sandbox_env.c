/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox env: what a container's programs are to have in their environment, each with its reason. */
#include "sandbox/plan/env.h"
#include "sys/json.h"
#include "tool/opts_old.h"
#include "tool/sandbox/sandbox.h"

#include <string.h>
#include <unistd.h>

#define CMD "sandbox env"

enum { O_TOPO = 300, O_PLUGIN, O_DEBUG_ALL, O_MOVED };
enum form { FORM_LINES, FORM_SHELL, FORM_JSON };

static int json(const struct sbx_env *e)
{
    struct hw_json j;
    hw_json_init(&j, stdout);
    hw_json_object(&j, NULL);
    hw_json_str(&j, "schema", "hawser-sandbox-env-1");
    hw_json_array(&j, "env");
    for (size_t i = 0; i < e->n; i++) {
        hw_json_object(&j, NULL);
        hw_json_str(&j, "name", e->v[i].name);
        hw_json_str(&j, "value", e->v[i].value);
        hw_json_str(&j, "why", e->v[i].why);
        hw_json_bool(&j, "callers", e->v[i].callers);
        hw_json_end(&j);
    }
    hw_json_end(&j);
    hw_json_end(&j);
    return hw_json_finish(&j);
}

/* A reason, and a value for --env-file, stay one line, whatever they repeat. */
static void line(const char *text)
{
    for (; *text; text++)
        putchar((unsigned char)*text < ' ' ? '?' : *text);
}

/* In single quotes, whatever it is. */
static void quoted(const char *text)
{
    putchar('\'');
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*text);
    putchar('\'');
}

static void lines(const struct sbx_env *e, bool shell)
{
    for (size_t i = 0; i < e->n; i++) {
        printf("# ");
        line(e->v[i].why);
        printf("\n%s%s=", shell ? "export " : "", e->v[i].name);
        if (shell)
            quoted(e->v[i].value);
        else
            line(e->v[i].value);
        putchar('\n');
    }
}

static int run(const struct sandbox_args *a, const struct sbx_env_want *want, enum form form)
{
    struct sbx_snapshot s;
    struct sbx_plan p;
    struct sbx_env e = {0};
    int rc = sandbox_make(CMD, a, &s, &p);
    for (size_t i = 0; rc == TOOL_OK && i < p.n_warning; i++)
        fprintf(stderr, "hawser " CMD ": warning: %s\n", p.warning[i]);
    if (rc == TOOL_OK && sbx_env_make(&e, &p, want) < 0)
        rc = tool_fail(CMD, "%s", hw_error());
    else if (rc == TOOL_OK && form == FORM_JSON)
        rc = json(&e) < 0 ? tool_fail(CMD, "the JSON could not be written") : TOOL_OK;
    else if (rc == TOOL_OK)
        lines(&e, form == FORM_SHELL);
    sbx_env_free(&e);
    sbx_plan_free(&p);
    sbx_snapshot_free(&s);
    return rc;
}

int sandbox_env_main(int argc, char **argv)
{
    static const struct opt options[] = {
        {"shell", 'S', NULL, "as lines for a shell: export NAME='VALUE'"},
        {"json", 'j', NULL, "say it in JSON"},
        {"nccl-topo", O_TOPO, "FILE", "NCCL_TOPO_FILE, where the container has that file"},
        {"net-plugin", O_PLUGIN, "NAME", "NCCL_NET_PLUGIN (default: hawser where there is no RDMA device)"},
        {"debug-all", O_DEBUG_ALL, NULL, "all that finds faults; system calls become 5 to 10 times slower in gVisor"},
        {"moved", O_MOVED, NULL, "this is the container's network namespace, and the NICs are in it: GID indexes too"},
        SANDBOX_OPTS,
        {0},
    };
    struct opts o = {
        .cmd = CMD,
        .args = "[OPTION...]",
        .about = "What a container with these NICs needs in its environment, at its start and at each exec; what is\n"
                 "set here already is kept.",
        .opt = options};
    struct sandbox_args a = {0};
    struct sbx_env_want want = {.caller = environ};
    enum form form = FORM_LINES;
    const char *arg;
    opts_start(&o);
    for (int id; (id = opts_next(&o, argc, argv, &arg)) != OPT_END;) {
        switch (id) {
        case OPT_HELP:
            return TOOL_OK;
        case 'S':
            form = FORM_SHELL;
            break;
        case 'j':
            form = FORM_JSON;
            break;
        case O_TOPO:
            want.nccl_topo = arg;
            break;
        case O_PLUGIN:
            want.net_plugin = arg;
            break;
        case O_DEBUG_ALL:
            want.debug_all = true;
            break;
        case O_MOVED:
            want.moved = true;
            break;
        default:
            if (!sandbox_option(&a, id, arg))
                return TOOL_USAGE;
        }
    }
    if (optind < argc)
        return tool_usage(CMD, "'%s': it takes no arguments", argv[optind]);
    return run(&a, &want, form);
}
