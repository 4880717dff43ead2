/* SPDX-License-Identifier: Apache-2.0 */
/* Doctor's checks of group nccl. struct nccl_look holds the observations; this file interprets them. */
#include "net/sysfs.h"
#include "tool/doctor/doctor.h"
#include "tool/nccl/nccl.h"
#include "tool/nccl/nccl_look.h"
#include "transport/netplugin/table/abi.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* NCCL 2.27.3 to 2.29.7 forget the plugin's name when the last communicator is destroyed. NCCL 2.28.7 and later load
 * libnccl-env.so before they read any parameter. */
#define FORGETS_FROM 22703
#define FORGETS_TO   22907
#define ENV_FROM     22807

static const char *const steps[] = {
    [NCCL_LOADING] = "loading",        [NCCL_TABLES] = "the search for the plugin's tables",
    [NCCL_INITIALISING] = "init()",    [NCCL_COUNTING] = "devices()",
    [NCCL_ASKING] = "getProperties()", [NCCL_FINALISING] = "finalize()",
    [NCCL_DONE] = "the last step",
};

static const char *short_name(const struct nccl_plugin *p)
{
    const char *slash = strrchr(p->asked, '/');
    return slash ? slash + 1 : p->asked;
}

/* Formats the last two lines of the child's output as one line in buf. */
static const char *format_last_lines(const struct nccl_child *c, char *buf, size_t cap)
{
    size_t end = strlen(c->tail), at, lines = 0;
    while (end && c->tail[end - 1] == '\n')
        end--;
    for (at = end; at > 0 && (c->tail[at - 1] != '\n' || ++lines < 2); at--)
        ;
    at = end - at > cap - 32 ? end - (cap - 32) : at;
    snprintf(buf, cap, "%s%.*s%s", end ? "; its last output: '" : "", (int)(end - at), c->tail + at, end ? "'" : "");
    for (char *p = buf; *p; p++)
        if ((unsigned char)*p < ' ')
            *p = ' ';
    return buf;
}

/* Returns DR_FAIL for a fault of hawser's plugin. A fault of another plugin is a warning, because NCCL continues
 * with the next plugin. */
static enum dr_outcome get_fault_outcome(const struct nccl_plugin *p)
{
    return p->ours ? DR_FAIL : DR_WARN;
}

void dr_nccl_library(struct dr_report *d)
{
    const struct nccl_lib *l = d->m->nccl->lib;
    char words[160];
    if (l->child.rc < 0) {
        dr_say(d, DR_FAIL, NULL, "the process that loads %s %s%s", l->asked, l->child.how,
               format_last_lines(&l->child, words, sizeof words));
        dr_mend(d, "hawser nccl check --nccl FILE   # FILE is the NCCL library that your program loads");
    } else if (l->version)
        dr_say(d, DR_PASS, NULL, "NCCL %d.%d.%d, which supports plugin tables up to v%d: %s", l->version / 10000,
               l->version / 100 % 100, l->version % 100, d->m->nccl->newest, l->path);
    else {
        /* without --nccl, the application may still load another library */
        dr_say(d, strcmp(l->asked, NCCL_LIBRARY) == 0 ? DR_WARN : DR_FAIL, NULL,
               "%s: the plugin tables that NCCL supports are unknown; tables up to v%d are tried", l->why, NCCL_NEWEST);
        dr_mend(d, "hawser nccl check --nccl FILE   # to find PyTorch's NCCL: find / -name libnccl.so.2");
    }
}

void dr_nccl_list(struct dr_report *d)
{
    const struct nccl_look *l = d->m->nccl;
    const char *list = getenv("NCCL_NET_PLUGIN");
    bool ours = false;
    for (size_t i = 0; i < l->n; i++)
        ours = ours || (l->plugin[i]->listed && l->plugin[i]->ours);
    if (l->none)
        dr_say(d, DR_FAIL, NULL, "NCCL_NET_PLUGIN=none (%s): NCCL loads no plugin", nccl_conf_where("NCCL_NET_PLUGIN"));
    else if (l->asked)
        dr_say(d, ours ? DR_PASS : DR_FAIL, NULL, "NCCL_NET_PLUGIN=%.120s (%.120s)%s", list,
               nccl_conf_where("NCCL_NET_PLUGIN"), ours ? "" : ": hawser is not in this list");
    else
        dr_say(d, ours ? DR_PASS : DR_FAIL, NULL,
               "NCCL_NET_PLUGIN is %s, so NCCL looks for libnccl-net.so, which is %s", list ? "empty" : "not set",
               ours                  ? "hawser's"
               : *l->plugin[0]->path ? l->plugin[0]->path
                                     : "not found, or cannot be loaded");
    if (!ours)
        dr_mend(d, "eval \"$(hawser nccl env)\"   # sets NCCL_NET_PLUGIN, and LD_LIBRARY_PATH if the loader needs it");
}

void dr_nccl_load(struct dr_report *d)
{
    const struct nccl_look *l = d->m->nccl;
    char words[200];
    for (size_t i = 0; i < l->n; i++) {
        const struct nccl_plugin *p = l->plugin[i];
        if (p->child.rc < 0 && p->step <= NCCL_TABLES) {
            dr_say(d, get_fault_outcome(p), short_name(p), "the process that tests the plugin %s during %s%s",
                   p->child.how, steps[p->step], format_last_lines(&p->child, words, sizeof words));
            dr_mend(d, "ldd -r %.200s", *p->path ? p->path : p->asked);
        } else if (*p->path)
            dr_say(d, DR_PASS, short_name(p), "%s", p->path);
        else {
            dr_say(d, get_fault_outcome(p), short_name(p), "%s", p->why);
            if (p->ours && *l->dir)
                dr_mend(d, "export LD_LIBRARY_PATH=%.300s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}", l->dir);
            else
                dr_mend(d, "ls /usr/lib*/libnccl-net*   # then, with the plugin's folder: export "
                           "LD_LIBRARY_PATH=DIR:$LD_LIBRARY_PATH");
        }
    }
}

/* Formats a set of table versions as in "v6, v7, v11". */
static const char *format_table_versions(unsigned set, char *buf, size_t cap)
{
    buf[0] = 0;
    for (int v = 0; v < 32; v++)
        if (set & 1u << v) {
            size_t at = strlen(buf);
            snprintf(buf + at, cap - at, "%sv%d", at ? ", " : "", v);
        }
    return *buf ? buf : "none";
}

void dr_nccl_table(struct dr_report *d)
{
    const struct nccl_look *l = d->m->nccl;
    char text[80];
    for (size_t i = 0; i < l->n; i++) {
        const struct nccl_plugin *p = l->plugin[i];
        if (!*p->path || p->step < NCCL_TABLES)
            continue;
        if (p->table)
            dr_say(d, DR_PASS, short_name(p), "NCCL %s table v%d of the plugin, which has %s",
                   p->listed ? "uses" : "would use", p->table, format_table_versions(p->tables, text, sizeof text));
        else {
            dr_say(d, get_fault_outcome(p), short_name(p), "the plugin's tables: %s; NCCL needs one of v%d to v%d",
                   format_table_versions(p->tables, text, sizeof text), NCCL_OLDEST, p->newest);
            dr_mend(d, "readelf --dyn-syms -W %.300s | grep ncclNet", p->path);
        }
    }
}

void dr_nccl_init(struct dr_report *d)
{
    const struct nccl_look *l = d->m->nccl;
    char words[200];
    for (size_t i = 0; i < l->n; i++) {
        const struct nccl_plugin *p = l->plugin[i];
        if (!p->table)
            continue;
        format_last_lines(&p->child, words, sizeof words);
        if (p->child.rc < 0 && p->step == NCCL_DONE)
            dr_say(d, get_fault_outcome(p), short_name(p),
                   "after all steps succeeded, the process that tests the plugin %s%s", p->child.how, words);
        else if (p->child.rc < 0)
            dr_say(d, get_fault_outcome(p), short_name(p), "the process that tests the plugin %s during %s%s",
                   p->child.how, steps[p->step], words);
        else if (p->rc)
            dr_say(d, get_fault_outcome(p), short_name(p), "%s failed with ncclResult_t %d%s", steps[p->step], p->rc,
                   words);
        else if (p->n_devices <= 0)
            dr_say(d, get_fault_outcome(p), short_name(p), "the plugin has %d devices, so NCCL skips it%s",
                   p->n_devices, words);
        else {
            dr_say(d, DR_PASS, short_name(p), "the plugin's name is '%s', with %d device%s", p->name, p->n_devices,
                   hw_plural(p->n_devices));
            continue;
        }
        dr_mend(d, "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET   # with these variables, your program prints the "
                   "plugin's messages");
    }
}

void dr_nccl_nics(struct dr_report *d)
{
    const struct nccl_look *l = d->m->nccl;
    for (size_t i = 0; i < l->n; i++) {
        const struct nccl_plugin *p = l->plugin[i];
        char text[DR_TEXT] = "";
        if (p->child.rc < 0 || p->rc || p->n_devices <= 0)
            continue;
        for (int k = 0; k < p->n_devices && k < NCCL_DEVICES; k++) {
            const struct nccl_device *v = &p->device[k];
            size_t at = strlen(text);
            snprintf(text + at, sizeof text - at, "%s%s (%d Mb/s%s%s)", at ? ", " : "", v->name, v->speed,
                     v->ptr & NCCL_PTR_CUDA ? ", GPU memory" : "", v->ptr & NCCL_PTR_DMABUF ? ", dma-bufs" : "");
        }
        dr_say(d, DR_PASS, short_name(p), "%s", text);
    }
}

void dr_nccl_network(struct dr_report *d)
{
    const struct nccl_look *l = d->m->nccl;
    const char *net = getenv("NCCL_NET");
    if (l->chosen < 0) {
        if (!net || !*net)
            dr_say(d, DR_FAIL, NULL, "no plugin can be used: NCCL silently uses its own network, IB or Socket");
        else if (strcasecmp(net, "IB") == 0 || strcasecmp(net, "Socket") == 0)
            dr_say(d, DR_FAIL, NULL, "NCCL_NET=%s: NCCL uses its own network %s, and no plugin", net, net);
        else
            dr_say(d, DR_FAIL, NULL, "NCCL_NET=%s, but no usable plugin has this name: NCCL will fail", net);
    } else if (l->plugin[l->chosen]->ours)
        dr_say(d, DR_PASS, NULL, "hawser, with table v%d", l->plugin[l->chosen]->table);
    else {
        bool later = false;
        for (size_t i = (size_t)l->chosen + 1; i < l->n; i++)
            later |= l->plugin[i]->listed && l->plugin[i]->ours;
        dr_say(d, DR_FAIL, NULL, "NCCL uses '%s' of plugin %s, %s", l->plugin[l->chosen]->name,
               short_name(l->plugin[l->chosen]), later ? "which precedes hawser in the list" : "not hawser");
    }
    if (d->n && d->r[d->n - 1].outcome == DR_FAIL)
        dr_mend(d, "eval \"$(hawser nccl env)\"");
}

void dr_nccl_link(struct dr_report *d)
{
    const struct nccl_look *l = d->m->nccl;
    int v = l->lib->version;
    char real[NCCL_PATH];
    const char *base = *l->link->path && realpath(l->link->path, real) ? strrchr(real, '/') : NULL;
    /* True for a link to hawser's plugin. The Python wheel has no links, so a file in the same folder as the plugin
     * also counts. */
    bool ours = base && (strcmp(base + 1, NCCL_PLUGIN_FILE) == 0 ||
                         (strlen(l->dir) == (size_t)(base - real) && strncmp(real, l->dir, strlen(l->dir)) == 0));
    if (v && (v < FORGETS_FROM || v > FORGETS_TO))
        dr_say(d, DR_SKIP, NULL, "NCCL %d.%d.%d does not need libnccl-net.so", v / 10000, v / 100 % 100, v % 100);
    else if (ours)
        dr_say(d, DR_PASS, NULL, "%s is hawser's", l->link->path);
    else {
        dr_say(d, DR_WARN, NULL,
               "libnccl-net.so is %s: after the last communicator is destroyed, the next one may silently use a "
               "network other than hawser",
               *l->link->path ? l->link->path : "missing, or cannot be loaded");
        snprintf(real, sizeof real, "%.250s/" NCCL_ANY_FILE, l->dir);
        if (*l->dir && access(real, R_OK) == 0)
            dr_mend(d, "eval \"$(hawser nccl env)\"");
        else
            dr_mend(d, "ln -s " NCCL_PLUGIN_FILE " %.250s/" NCCL_ANY_FILE "; eval \"$(hawser nccl env)\"",
                    *l->dir ? l->dir : "DIR");
    }
}

void dr_nccl_tuner(struct dr_report *d)
{
    const struct nccl_look *l = d->m->nccl;
    const char *asked = getenv("NCCL_TUNER_PLUGIN");
    asked = asked && *asked ? asked : NULL;
    if (*l->tuner->path) {
        char real[NCCL_PATH];
        const char *base = realpath(l->tuner->path, real) ? strrchr(real, '/') : NULL;
        bool ours = base && strcmp(base + 1, NCCL_PLUGIN_FILE) == 0;
        dr_say(d, ours ? DR_PASS : DR_WARN, NULL, "NCCL loads %s%s%s", l->tuner->path,
               asked ? ", set by NCCL_TUNER_PLUGIN" : ", because it is on the loader's path",
               ours ? "" : "; this file is not hawser's plugin");
        if (!ours)
            dr_mend(d, "%s", asked ? "unset NCCL_TUNER_PLUGIN" : "export NCCL_TUNER_PLUGIN=" NCCL_PLUGIN_FILE);
        return;
    }
    if (asked && strcasecmp(asked, "none") == 0) {
        dr_say(d, DR_WARN, NULL, "NCCL_TUNER_PLUGIN=none: NCCL uses its own cost model");
        dr_mend(d, "unset NCCL_TUNER_PLUGIN");
    } else if (asked) {
        dr_say(d, DR_WARN, NULL, "NCCL_TUNER_PLUGIN=%.120s, which is not found, or cannot be loaded", asked);
        dr_mend(d, "unset NCCL_TUNER_PLUGIN");
    } else if (l->chosen >= 0 && l->plugin[l->chosen]->tuners)
        dr_say(d, DR_PASS, NULL, "NCCL uses the network plugin's own tuner");
    else
        dr_say(d, DR_SKIP, NULL, "no tuner: NCCL uses its own cost model");
}

void dr_nccl_env_plugin(struct dr_report *d)
{
    const struct nccl_look *l = d->m->nccl;
    if (!*l->env->path)
        dr_say(d, DR_PASS, NULL, "no libnccl-env.so");
    else if (l->lib->version && l->lib->version < ENV_FROM)
        dr_say(d, DR_PASS, NULL, "this NCCL does not load %s", l->env->path);
    else {
        dr_say(d, DR_WARN, NULL, "NCCL %s %s, which may override environment variables",
               l->lib->version ? "loads" : "may load", l->env->path);
        dr_mend(d, "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV   # with these variables, your program prints the "
                   "parameters that NCCL uses");
    }
}

void dr_nccl_environment(struct dr_report *d)
{
    struct nccl_conflict c[NCCL_CONFLICTS];
    size_t n = nccl_conflicts(c);
    for (size_t i = 0; i < n; i++) {
        enum dr_outcome o = c[i].weight == NCCL_WRONG ? DR_FAIL : c[i].weight == NCCL_CAUTION ? DR_WARN : DR_PASS;
        dr_say(d, o, c[i].name, "=%.60s (%.80s): %s", c[i].value ? c[i].value : "", nccl_conf_where(c[i].name),
               c[i].text);
        dr_mend(d, "%s", c[i].mend);
    }
    if (n == 0)
        dr_say(d, DR_PASS, NULL, "no variable conflicts with the plugin or with its settings");
}
