/* SPDX-License-Identifier: Apache-2.0 */
/* Doctor's checks of group nixl. struct nixl_look holds the observations; this file interprets them. */
#include "tool/doctor/doctor.h"
#include "tool/nixl/nixl_look.h"

#include <stdlib.h>
#include <string.h>

/* Adds the command that installs the backend into this NIXL wheel. If this installation of hawser has no backend, adds
 * the command that builds and installs a package with the backend. */
static void mend_by_install(struct dr_report *d, const struct nixl_wheel *w)
{
    const struct nixl_look *l = d->m->nixl;
    if (*l->package && strcmp(l->package, l->python) == 0)
        dr_mend(d, "%s -m hawser nixl-install", l->package);
    else if (*l->package)
        dr_mend(d, "%.180s -m hawser nixl-install --dir %.180s", l->package, w->folder);
    else if (*l->own)
        dr_mend(d, "cp %.180s %.200s", l->own, w->backend->path);
    else
        dr_mend(d, "make deb && apt install ./dist/hawser-nixl_*.deb   # or install the Python wheel; this "
                   "installation of hawser has no backend");
}

void dr_nixl_wheel(struct dr_report *d)
{
    const struct nixl_look *l = d->m->nixl;
    for (size_t i = 0; i < l->n; i++)
        dr_say(d, DR_PASS, l->wheel[i].name, "%s, in %s%s%s", l->wheel[i].version, l->wheel[i].folder,
               *l->python ? ", found by " : "", l->python);
    if (l->n > 0)
        return;
    if (*l->why)
        dr_say(d, DR_FAIL, NULL, "%s", l->why);
    else
        dr_say(d, DR_FAIL, NULL, "no nixl-cu12 or nixl-cu13 wheel in %s%s", *l->python ? "the packages of " : "",
               *l->python ? l->python : l->where);
    dr_mend(d, "hawser nixl check --python FILE   # FILE is the Python that runs your program");
}

void dr_nixl_version(struct dr_report *d)
{
    const struct nixl_look *l = d->m->nixl;
    const char *any = getenv(NIXL_ANY_VERSION);
    char all[200];
    for (size_t i = 0; i < l->n; i++) {
        const struct nixl_wheel *w = &l->wheel[i];
        bool goes_on = any && strcmp(any, "1") == 0;
        if (w->tried)
            dr_say(d, DR_PASS, w->name, "the backend was tested with %s", w->version);
        else {
            dr_say(d, goes_on ? DR_WARN : DR_FAIL, w->name, "the backend was not tested with %s%s; tested versions: %s",
                   w->version, goes_on ? ", and continues because of " NIXL_ANY_VERSION "=1" : " and refuses to start",
                   nixl_list_tried(all, sizeof all));
            dr_mend(d, "pip install %s==%s", w->name, nixl_newest_tried());
        }
    }
}

void dr_nixl_backend(struct dr_report *d)
{
    const struct nixl_look *l = d->m->nixl;
    for (size_t i = 0; i < l->n; i++) {
        const struct nixl_backend *b = l->wheel[i].backend;
        const char *by = *l->plugin_dir ? " (NIXL_PLUGIN_DIR)" : "";
        if (!b->there) {
            dr_say(d, DR_FAIL, l->wheel[i].name, "missing: %s%s", b->path, by);
            if (*l->plugin_dir)
                dr_mend(d, "unset NIXL_PLUGIN_DIR   # then run this check again");
            else
                mend_by_install(d, &l->wheel[i]);
        } else if (!b->ours) {
            dr_say(d, DR_FAIL, l->wheel[i].name,
                   "%s%s is not hawser's backend: the file does not contain the name " NIXL_ANY_VERSION, b->path, by);
            dr_mend(d, "mv %.200s %.150s.other   # then run this check again", b->path, b->path);
        } else if (*l->plugin_dir) {
            dr_say(d, DR_PASS, l->wheel[i].name, "%s: set by NIXL_PLUGIN_DIR, which hides NIXL's own backends",
                   b->path);
        } else
            dr_say(d, DR_PASS, l->wheel[i].name, "%s", b->path);
    }
}

void dr_nixl_load(struct dr_report *d)
{
    const struct nixl_look *l = d->m->nixl;
    for (size_t i = 0; i < l->n; i++) {
        const struct nixl_backend *b = l->wheel[i].backend;
        if (!b->there)
            continue;
        if (b->child.rc < 0)
            dr_say(d, DR_FAIL, l->wheel[i].name, "the process that loads the backend %s", b->child.how);
        else if (!b->loads)
            dr_say(d, DR_FAIL, l->wheel[i].name, "%s", b->why);
        else if (!b->entry)
            dr_say(d, DR_FAIL, l->wheel[i].name,
                   "the file has no symbol nixl_plugin_init, which NIXL calls to start a backend");
        else {
            dr_say(d, DR_PASS, l->wheel[i].name, "the file loads and has the symbol nixl_plugin_init");
            continue;
        }
        dr_mend(d, "ldd -r %.300s", b->path);
    }
}
