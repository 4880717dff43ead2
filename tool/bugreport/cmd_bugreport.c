/* SPDX-License-Identifier: Apache-2.0 */
/* hawser bugreport: prints the information needed to diagnose a fault remotely, without secrets. The command reads no
 * user files, prints the values of only those environment variables that are knobs, and masks addresses on request. */
#include "net/sysfs.h"
#include "tool/bugreport/mask.h"
#include "tool/build.h"
#include "tool/doctor/doctor.h"
#include "tool/page/run.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#define CMD "bugreport"

struct bugreport {
    const char *out;
    bool mask;
};

static void print_line_of(FILE *out, int root, const char *name, const char *path)
{
    char text[512];
    fprintf(out, "%s: %s\n", name, hw_root_text(root, text, sizeof text, "%s", path) > 0 ? text : "-");
}

static void print_system(FILE *out, int root, const struct run *r)
{
    struct utsname u;
    struct sysinfo i;
    char text[1024], *at;
    fprintf(out, "## System\ndate: %s\nhost: %s\n", r->date, r->host);
    if (uname(&u) == 0)
        fprintf(out, "kernel: %s %s %s\n", u.sysname, u.release, u.machine);
    if (hw_root_text(root, text, sizeof text, "etc/os-release") > 0 && (at = strstr(text, "PRETTY_NAME=")))
        fprintf(out, "system: %.*s\n", (int)strcspn(at + 12, "\n"), at + 12);
    fprintf(out, "CPUs: %ld, GPUs: %u\n", sysconf(_SC_NPROCESSORS_ONLN), r->own.gpus);
    if (sysinfo(&i) == 0)
        fprintf(out, "memory: %" PRIu64 " MiB\n", (uint64_t)i.totalram * i.mem_unit >> 20);
    fprintf(out, "user: %s\n", geteuid() ? "not root" : "root");
    print_line_of(out, root, "congestion control", "proc/sys/net/ipv4/tcp_congestion_control");
    print_line_of(out, root, "tcp_rmem", "proc/sys/net/ipv4/tcp_rmem");
    print_line_of(out, root, "tcp_wmem", "proc/sys/net/ipv4/tcp_wmem");
}

static void print_nics(FILE *out, int root, const struct tp_facts *f)
{
    fprintf(out, "\n## NICs\n");
    for (uint32_t i = 0; i < f->n_nics; i++) {
        const struct tp_fact_nic *n = &f->nic[i];
        char addr[INET6_ADDRSTRLEN] = "", driver[64] = "", state[32] = "";
        (void)inet_ntop(n->addr.family == 6 ? AF_INET6 : AF_INET, n->addr.byte, addr, sizeof addr);
        (void)hw_root_link_name(root, driver, sizeof driver, "sys/class/net/%s/device/driver", n->nic);
        (void)hw_root_text(root, state, sizeof state, "sys/class/net/%s/operstate", n->nic);
        fprintf(out, "%s: %s/%u, MTU %u, ", n->nic, addr, n->prefix, n->mtu);
        if (n->speed)
            fprintf(out, "%g Gbit/s", n->speed / 1e3);
        else
            fprintf(out, "rate unknown");
        fprintf(out, ", driver %s, %s%s%s\n", *driver ? driver : "none", *state ? state : "-",
                *n->rdma ? ", RDMA " : "", n->rdma);
    }
}

static void print_set_knob(void *arg, const char *name, const char *env, const char *def, const char *unit,
                           const char *doc)
{
    const char *value = getenv(env);
    (void)name, (void)unit, (void)doc;
    if (value)
        fprintf((FILE *)arg, "%s=%.200s (default %s)\n", env, value, *def ? def : "-");
}

struct known {
    const char *name;
    bool is_knob;
};

static void compare_knob(void *arg, const char *name, const char *env, const char *def, const char *unit,
                         const char *doc)
{
    struct known *k = arg;
    (void)name, (void)def, (void)unit, (void)doc;
    k->is_knob |= strcmp(k->name, env) == 0;
}

static void print_environment(FILE *out)
{
    extern char **environ;
    fprintf(out, "\n## Knobs set in the environment\n");
    hawser_knobs(print_set_knob, out);
    fprintf(out, "\n## Other HAWSER_, NCCL_, CUDA_ and NIXL_ variables (names only)\n");
    for (char **e = environ; e && *e; e++) {
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
        struct known k = {.name = name};
        hawser_knobs(compare_knob, &k);
        if (!k.is_knob && (strncmp(name, "HAWSER_", 7) == 0 || strncmp(name, "NCCL_", 5) == 0 ||
                           strncmp(name, "CUDA_", 5) == 0 || strncmp(name, "NIXL_", 5) == 0))
            fprintf(out, "%s\n", name);
    }
}

static int print_doctor(FILE *out, int root)
{
    static const char *const nothing[] = {NULL}; /* an empty environment, because checks print values of variables */
    struct dr_report report = {0};
    HW_AUTO_FREE struct dr_machine *m = calloc(1, sizeof *m);
    if (!m)
        return hw_no_memory("the checks");
    fprintf(out, "\n## hawser doctor\n");
    dr_probe(m, root, true);
    m->env = nothing;
    int rc = dr_run(&report, m, NULL, (1u << DR_PAIR) - 1);
    if (rc == 0)
        dr_print(out, &report, false, false);
    dr_free(&report);
    return rc;
}

static int write_bugreport(FILE *out, const struct run *r)
{
    int root = hw_root_open("/");
    if (root < 0)
        return root;
    fprintf(out, "# hawser bugreport\n# This text contains no keys and no contents of your files. It contains the "
                 "names, but not the values, of HAWSER_, NCCL_, CUDA_ and NIXL_ variables that are not knobs. Read the "
                 "text before you send it.\n\n## Program\n");
    build_print(out);
    fputc('\n', out);
    print_system(out, root, r);
    print_nics(out, root, &r->own);
    print_environment(out);
    int rc = print_doctor(out, root);
    hw_close(&root);
    return rc;
}

static int run_bugreport(const struct bugreport *b)
{
    HW_AUTO_FREE char *text = NULL;
    size_t len = 0;
    HW_AUTO_FREE struct run *r = calloc(1, sizeof *r);
    FILE *f = r ? open_memstream(&text, &len) : NULL;
    if (!f)
        return hw_no_memory("the report");
    run_note(r);
    int rc = write_bugreport(f, r);
    if (fclose(f) != 0 && rc == 0)
        rc = hw_no_memory("the report");
    HW_AUTO_FREE char *masked = rc == 0 && b->mask ? mask_addresses(text, r->host) : NULL;
    if (rc < 0)
        return rc;
    if (b->mask && !masked)
        return hw_no_memory("the report");
    FILE *out = b->out ? fopen(b->out, "we") : stdout;
    if (!out)
        return hw_fail(-errno, "writing %s: %s", b->out, strerror(errno));
    fputs(masked ? masked : text, out);
    if (b->out && fclose(out) != 0)
        return hw_fail(-errno, "writing %s: %s", b->out, strerror(errno));
    return 0;
}

int cmd_bugreport(int argc, char **argv)
{
    static const struct opt rows[] = {
        OPT_TEXT("out", 'o', "FILE", struct bugreport, out, "write the text to FILE (default: standard output)"),
        OPT_FLAG("mask-addresses", 0, struct bugreport, mask,
                 "replace IP and MAC addresses, except loopback and unspecified addresses, with <address-1>, "
                 "<address-2>, ..., and this host's name with <host>"),
        {0}};
    static const struct opts o = {
        .cmd = CMD,
        .args = "[OPTION...]",
        .about = "Prints what a bug report needs: versions, kernel, NICs with drivers and rates, the knobs that are "
                 "set,\nand the findings of `hawser doctor`. Reads no keys and no files of users. Prints the\nnames, "
                 "but not the values, of HAWSER_, NCCL_, CUDA_ and NIXL_ variables that are not knobs. Changes "
                 "nothing, sends nothing.",
        .rows = rows};
    struct bugreport b = {0};
    int rc = opts_parse(&o, &b, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    rc = run_bugreport(&b);
    if (rc < 0)
        return tool_fail(CMD, "%s", hw_error());
    if (b.out)
        printf("wrote %s: read the file, then send it with a description of what you did and what happened\n", b.out);
    return TOOL_OK;
}
