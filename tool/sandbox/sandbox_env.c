/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox env: prints the environment variables for a container's programs, each with its reason. */
#include "sandbox/plan/env.h"
#include "sys/json.h"
#include "tool/opts.h"
#include "tool/sandbox/sandbox.h"

#include <string.h>
#include <unistd.h>

#define CMD "sandbox env"

enum form { FORM_LINES, FORM_SHELL, FORM_JSON };

static int print_sandbox_env_json(const struct sbx_env *e)
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

/* Prints text on one line, as comments and --env-file require: newlines and other characters below 0x20 become '?'. */
static void print_without_controls(const char *text)
{
    for (; *text; text++)
        putchar((unsigned char)*text < ' ' ? '?' : *text);
}

/* Prints a value in single quotes, escaped for the shell. */
static void print_shell_value(const char *text)
{
    putchar('\'');
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*text);
    putchar('\'');
}

static void print_env_lines(const struct sbx_env *e, bool shell)
{
    for (size_t i = 0; i < e->n; i++) {
        printf("# ");
        print_without_controls(e->v[i].why);
        printf("\n%s%s=", shell ? "export " : "", e->v[i].name);
        if (shell)
            print_shell_value(e->v[i].value);
        else
            print_without_controls(e->v[i].value);
        putchar('\n');
    }
}

static int print_env(const struct sandbox_args *a, const struct sbx_env_want *want, enum form form)
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
        rc = print_sandbox_env_json(&e) < 0 ? tool_fail(CMD, "writing the JSON failed") : TOOL_OK;
    else if (rc == TOOL_OK)
        print_env_lines(&e, form == FORM_SHELL);
    sbx_env_free(&e);
    sbx_plan_free(&p);
    sbx_snapshot_free(&s);
    return rc;
}

struct env_args {
    struct sandbox_args plan;
    struct sbx_env_want want;
    enum form form;
};

static int take_shell(void *args, const char *text)
{
    (void)text;
    ((struct env_args *)args)->form = FORM_SHELL;
    return 0;
}

static int take_json(void *args, const char *text)
{
    (void)text;
    ((struct env_args *)args)->form = FORM_JSON;
    return 0;
}

static const struct opt rows[] = {
    OPT_CALL("shell", 'S', NULL, take_shell, "print lines for a shell: export NAME='VALUE'"),
    OPT_CALL("json", 'j', NULL, take_json, "print JSON"),
    OPT_TEXT("nccl-topo", 0, "FILE", struct env_args, want.nccl_topo,
             "set NCCL_TOPO_FILE to FILE, a path in the container"),
    OPT_TEXT("net-plugin", 0, "NAME", struct env_args, want.net_plugin,
             "set NCCL_NET_PLUGIN to NAME (default: hawser if the sandbox has NICs but no RDMA device)"),
    OPT_FLAG("debug-all", 0, struct env_args, want.debug_all,
             "add settings for debugging, which make a gVisor sandbox 5 to 10 times slower"),
    OPT_FLAG(
        "moved", 0, struct env_args, want.moved,
        "also read the GID indexes; use this in the container's network namespace, after the NICs were moved there"),
    OPT_GROUP(sandbox_opts, struct env_args, plan),
    {0},
};

int sandbox_env_main(int argc, char **argv)
{
    static const struct opts o = {
        .cmd = CMD,
        .args = "[OPTION...]",
        .about = "Prints the environment that a container with the planned NICs needs, at its start and at each exec. "
                 "Variables that are already set in this command's environment keep their values.",
        .rows = rows};
    struct env_args a = {.want.caller = environ};
    int rc = opts_parse(&o, &a, argc, argv);
    return rc != OPTS_GO ? rc : print_env(&a.plan, &a.want, a.form);
}
