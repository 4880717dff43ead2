/* SPDX-License-Identifier: Apache-2.0 */
/* Describes a plan as a device of the Container Device Interface (CDI). Uses only features of version 0.5.0, which
 * Debian 12's podman supports. */
#include "oci/spec.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static json_t *make_cdi_mount(const char *from, const char *to)
{
    return json_pack("{ssssso}", "hostPath", from, "containerPath", to, "options",
                     sbx_spec_strings("bind", "ro", "nosuid", "nodev", "noexec", NULL));
}

static json_t *make_cdi_hook(const struct sbx_spec *sp, const char *stage)
{
    json_t *args = sbx_spec_strings("hawser", "oci-hook", stage, NULL);
    for (const char *const *a = sp->hook_arg; *a; a++)
        json_array_append_new(args, json_string(*a));
    return json_pack("{ssssso}", "hookName", stage, "path", sp->program, "args", args);
}

/* Sets member name of o to array, unless the array is empty: CDI's schema does not allow empty arrays. */
static void set_nonempty_array(json_t *o, const char *name, json_t *array)
{
    if (json_array_size(array))
        json_object_set_new(o, name, array);
    else
        json_decref(array);
}

static int fill_container_edits(json_t *o, const struct sbx_spec *sp)
{
    json_t *env = json_array(), *mounts = json_array(), *nodes = json_array(), *hooks = json_array();
    struct sbx_env e;
    int rc = sbx_env_make(&e, sp->plan, &sp->env);
    for (size_t i = 0; i < e.n && !sp->no_env; i++)
        json_array_append_new(env, json_sprintf("%s=%s", e.v[i].name, e.v[i].value));
    sbx_env_free(&e);
    if (sp->sysfs)
        json_array_append_new(mounts, make_cdi_mount(sp->sysfs, "/sys"));
    if (sp->topo)
        json_array_append_new(mounts, make_cdi_mount(sp->topo, sp->topo_at));
    for (size_t i = 0; sp->dev && i < sp->dev->n; i++) {
        const struct sbx_dev *v = &sp->dev->v[i];
        json_array_append_new(nodes, json_pack("{sssssisisiss}", "path", v->path, "type", "c", "major", (int)v->major,
                                               "minor", (int)v->minor, "fileMode", 0666, "permissions", "rw"));
    }
    if (sp->hook_arg) {
        json_array_append_new(hooks, make_cdi_hook(sp, "createRuntime"));
        json_array_append_new(hooks, make_cdi_hook(sp, "poststop"));
    }
    set_nonempty_array(o, "env", env);
    set_nonempty_array(o, "deviceNodes", nodes);
    set_nonempty_array(o, "mounts", mounts);
    set_nonempty_array(o, "hooks", hooks);
    return rc;
}

json_t *sbx_cdi(const struct sbx_spec *sp, const char *name)
{
    /* A device name matches ^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$ (CDI's SPEC.md). */
    size_t n = strlen(name);
    bool good = n && n < 128 && isalnum((unsigned char)name[0]) && isalnum((unsigned char)name[n - 1]);
    for (size_t i = 0; good && i < n; i++)
        good = isalnum((unsigned char)name[i]) || strchr("_.:-", name[i]);
    if (!good) {
        hw_fail(-EINVAL, "'%.64s' is not a valid name of a CDI device", name);
        return NULL;
    }
    json_auto_t *e = json_object();
    if (fill_container_edits(e, sp) < 0)
        return NULL;
    if (json_object_size(e) == 0) {
        hw_fail(-ENODEV, "the plan contains nothing for a container");
        return NULL;
    }
    json_t *o = json_pack("{ssss s[{sssO}]}", "cdiVersion", "0.5.0", "kind", SBX_CDI_KIND, "devices", "name", name,
                          "containerEdits", e);
    if (!o)
        hw_no_memory("the specification");
    return o;
}
