/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adds the filter to linux.seccomp of a config.json ("Seccomp" in config-linux.md of the OCI runtime specification).
 *
 * Runtimes pass each entry to libseccomp as a rule. If two rules are for the same call, libseccomp keeps the broader
 * rule, whatever the actions are. For example, a notification for some ioctls has no effect if another rule allows all
 * ioctls. If a profile's entry is for a call of this filter, and does not refuse all such calls, the entry is therefore
 * replaced by entries for the remaining cases. There is one entry for each bit of a condition (or for each side of a
 * block of addresses). It has the same action as the original, and matches calls in which this bit differs (or whose
 * address is on this side).
 */
#include "verbs/agent/filter.h"
#include "verbs/agent/filter_rules.h"

#include <string.h>

#if defined(__x86_64__)
#define NATIVE "SCMP_ARCH_X86_64"
#elif defined(__aarch64__)
#define NATIVE "SCMP_ARCH_AARCH64"
#else
#error "the OCI's name for this architecture is unknown"
#endif

#define NOTIFY   "SCMP_ACT_NOTIFY"
#define ALLOW    "SCMP_ACT_ALLOW"
#define MASKED   "SCMP_CMP_MASKED_EQ"
#define KILLABLE "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"
#define METADATA "hawser"

/* Calls that the injection of the stub needs (inject.h), but that profiles may not allow. */
static const char *const needed[] = {"clone", "close_range", "mseal"};

struct join {
    const char *runtime, *dflt; /* dflt is the default action */
    json_t *out;                /* the resulting entries */
    int rc;
};

static const char *get_seccomp_text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* Returns true if the action may let the call continue. */
static bool is_permitting_action(const char *action)
{
    return strcmp(action, ALLOW) == 0 || strcmp(action, "SCMP_ACT_LOG") == 0 || strcmp(action, "SCMP_ACT_TRACE") == 0;
}

/* Returns false for a notification of write() with runc, which refuses such a filter, because it would block runc's own
 * write() (libcontainer/seccomp). */
static bool is_rule_applicable(const struct join *j, const struct vb_filter_rule *r)
{
    return strcmp(j->runtime, "runc") != 0 || r->err || strcmp(r->call, "write") != 0;
}

static void append_seccomp_entry(struct join *j, json_t *entry)
{
    size_t i = 0;
    while (i < json_array_size(j->out) && !json_equal(json_array_get(j->out, i), entry))
        i++;
    if (!entry || (i == json_array_size(j->out) && json_array_append(j->out, entry) < 0))
        j->rc = hw_no_memory("the seccomp section");
    json_decref(entry);
}

static json_t *make_masked_condition(const struct vb_compare *c)
{
    return json_pack("{sisIsIss}", "index", (int)c->arg, "value", (json_int_t)c->mask, "valueTwo", (json_int_t)c->value,
                     "op", MASKED);
}

static json_t *make_bound_condition(unsigned arg, const char *op, uint64_t value)
{
    return json_pack("{sisIss}", "index", (int)arg, "value", (json_int_t)value, "op", op);
}

/* Returns the conditions of a rule as JSON. */
static json_t *make_rule_conditions(const struct vb_filter_rule *r)
{
    json_t *args = json_array();
    for (size_t i = 0; i < HW_ARRAY_LEN(r->is) && r->is[i].mask; i++)
        json_array_append_new(args, make_masked_condition(&r->is[i]));
    return args;
}

/* ---- the profile's entries ------------------------------------------------------------------------- */

/* Returns true if it is certain that no call can match both condition c and r. */
static bool is_disjoint_condition(const json_t *c, const struct vb_compare *r)
{
    const json_t *v = json_object_get(c, "value"), *v2 = json_object_get(c, "valueTwo");
    const char *op = get_seccomp_text(c, "op");
    uint64_t mask = UINT64_MAX, value = (uint64_t)json_integer_value(v);
    if (!json_is_integer(v))
        return false;
    if (strcmp(op, MASKED) == 0) {
        mask = value;
        value = (uint64_t)json_integer_value(v2);
    } else if (strcmp(op, "SCMP_CMP_EQ") != 0) {
        return false;
    }
    return (value ^ r->value) & mask & r->mask;
}

enum meeting { OTHERS, NEVER, UNCLEAR };

/* Compares the conditions of an entry with the conditions of r. Returns OTHERS if they test different arguments, NEVER
 * if no call can match both, and otherwise UNCLEAR with the argument in *arg. */
static enum meeting relate_conditions(const json_t *args, const struct vb_filter_rule *r, unsigned *arg)
{
    enum meeting m = OTHERS;
    for (size_t i = 0; i < json_array_size(args); i++) {
        const json_t *c = json_array_get(args, i);
        for (size_t k = 0; k < HW_ARRAY_LEN(r->is) && r->is[k].mask; k++) {
            if (json_integer_value(json_object_get(c, "index")) != r->is[k].arg)
                continue;
            if (is_disjoint_condition(c, &r->is[k]))
                return NEVER;
            *arg = r->is[k].arg;
            m = UNCLEAR;
        }
    }
    return m;
}

static const struct vb_filter_rule *rule_of(const struct join *j, const struct vb_filter_rule *r, const char *call)
{
    while (r->call && !(strcmp(r->call, call) == 0 && is_rule_applicable(j, r)))
        r++;
    return r->call ? r : NULL;
}

static void append_outside_rules(struct join *j, const json_t *entry, const char *call,
                                 const struct vb_filter_rule *from);

static void add_condition(json_t *entry, json_t *condition)
{
    json_t *args = json_object_get(entry, "args");
    if (!json_is_array(args)) {
        args = json_array();
        json_object_set_new(entry, "args", args);
    }
    json_array_append_new(args, condition);
}

/* Appends the entry with an additional condition, limited to the cases in which none of the rules after r applies. */
static void append_with_condition(struct join *j, const json_t *entry, json_t *condition,
                                  const struct vb_filter_rule *r)
{
    json_t *e = json_deep_copy(entry);
    add_condition(e, condition);
    append_outside_rules(j, e, r->call, r + 1);
    json_decref(e);
}

/* Appends the entry, which is for this call only, limited to the cases in which none of the rules starting at `from`
 * applies. A rule does not apply if its first condition is false, or if the first is true and the second is false. A
 * condition is false if one of its bits differs or, for a block of addresses, if the address is below or above the
 * block. If a rule has no conditions, nothing is appended.
 *
 * Simpler conditions would be equivalent, but libseccomp 2.5 hangs if two rules begin with the same condition and then
 * test different arguments. */
static void append_outside_rules(struct join *j, const json_t *entry, const char *call,
                                 const struct vb_filter_rule *from)
{
    const struct vb_filter_rule *r = rule_of(j, from, call);
    unsigned arg = 0;
    enum meeting m = r ? relate_conditions(json_object_get(entry, "args"), r, &arg) : OTHERS;
    if (m == UNCLEAR)
        j->rc = hw_fail(-EINVAL,
                        "the seccomp section cannot be merged: it has a condition for %s on argument %u, which "
                        "hawser's filter also checks",
                        call, arg);
    else if (m == NEVER)
        append_outside_rules(j, entry, call, r + 1);
    else if (!r)
        append_seccomp_entry(j, json_deep_copy(entry));
    if (!r || m != OTHERS)
        return;
    json_t *held = json_deep_copy(entry);
    for (size_t i = 0; i < HW_ARRAY_LEN(r->is) && r->is[i].mask; i++) {
        const struct vb_compare *c = &r->is[i];
        if (c->mask > UINT32_MAX) {
            if (c->value)
                append_with_condition(j, held, make_bound_condition(c->arg, "SCMP_CMP_LT", c->value), r);
            append_with_condition(
                j, held, make_bound_condition(c->arg, "SCMP_CMP_GE", c->value + (~c->mask & INT64_MAX) + 1), r);
        }
        for (unsigned b = 0; c->mask <= UINT32_MAX && b < 32; b++)
            if (c->mask & 1u << b)
                append_with_condition(
                    j, held, make_masked_condition(&(struct vb_compare){c->arg, 1u << b, ~c->value & 1u << b}), r);
        add_condition(held, make_masked_condition(c));
    }
    json_decref(held);
}

/* Handles an entry for the call of r. Returns false if the call's name must be removed from the entry. */
static bool keep_call_name(struct join *j, const json_t *entry, const struct vb_filter_rule *r)
{
    const char *action = get_seccomp_text(entry, "action");
    bool always = json_array_size(json_object_get(entry, "args")) == 0;
    if (!is_permitting_action(action) && always) {
        if (r->err == 0)
            j->rc = hw_fail(
                -EINVAL, "the seccomp section refuses all calls of %s, some of which the broker must answer", r->call);
        return true;
    }
    if (always && strcmp(action, j->dflt) == 0)
        return false;
    json_t *e = json_deep_copy(entry);
    json_object_set_new(e, "names", json_pack("[s]", r->call));
    append_outside_rules(j, e, r->call, r);
    json_decref(e);
    return false;
}

static int merge_profile_entry(struct join *j, const json_t *entry)
{
    json_auto_t *e = json_deep_copy(entry);
    json_t *names = json_object_get(e, "names");
    if (!json_is_object(entry) || !json_is_array(names) || !*get_seccomp_text(entry, "action"))
        return hw_fail(-EINVAL, "the seccomp section has an entry without names or action");
    if (strcmp(get_seccomp_text(entry, "action"), NOTIFY) == 0)
        return hw_fail(-EINVAL, "the seccomp section already notifies another program");
    for (size_t i = 0; j->rc == 0 && i < json_array_size(names);) {
        const char *name = json_string_value(json_array_get(names, i));
        if (!name)
            return hw_fail(-EINVAL, "the seccomp section has a name that is not a string");
        const struct vb_filter_rule *r = rule_of(j, vb_filter_rules, name);
        if (r && !keep_call_name(j, entry, r))
            json_array_remove(names, i);
        else
            i++;
    }
    if (j->rc == 0 && json_array_size(names))
        append_seccomp_entry(j, json_incref(e));
    return j->rc;
}

/* Returns true if an entry of the original profile permits the call, at least with certain arguments. If refused is
 * true, instead returns true if an entry refuses the call whatever its arguments are. */
static bool is_call_named(const json_t *entries, const char *call, bool refused)
{
    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *e = json_array_get(entries, i), *names = json_object_get(e, "names");
        if (is_permitting_action(get_seccomp_text(e, "action")) == refused ||
            (refused && json_array_size(json_object_get(e, "args"))))
            continue;
        for (size_t k = 0; k < json_array_size(names); k++)
            if (strcmp(json_string_value(json_array_get(names, k)), call) == 0)
                return true;
    }
    return false;
}

/* ---- own entries ----------------------------------------------------------------------------------- */

static void append_own_entries(struct join *j, const json_t *theirs)
{
    json_t *always = json_array(), *allow = json_array();
    bool open = is_permitting_action(j->dflt);
    for (const struct vb_filter_rule *r = vb_filter_rules; r->call; r++) {
        /* A rule that refuses a call needs no entry if an entry of the profile refuses all such calls, or if the rule's
         * error is EPERM and the profile refuses calls by default. */
        if (!is_rule_applicable(j, r) ||
            (r->err && (is_call_named(theirs, r->call, true) || (!open && r->err == EPERM))))
            continue;
        if (!r->is[0].mask)
            json_array_append_new(always, json_string(r->call)); /* the error of all these calls is EPERM */
        else if (r->err)
            append_seccomp_entry(j, json_pack("{s[s]sssiso}", "names", r->call, "action", "SCMP_ACT_ERRNO", "errnoRet",
                                              r->err, "args", make_rule_conditions(r)));
        else
            append_seccomp_entry(
                j, json_pack("{s[s]ssso}", "names", r->call, "action", NOTIFY, "args", make_rule_conditions(r)));
    }
    for (size_t i = 0; !open && i < HW_ARRAY_LEN(needed); i++)
        if (!is_call_named(theirs, needed[i], false))
            json_array_append_new(allow, json_string(needed[i]));
    if (json_array_size(always))
        append_seccomp_entry(j, json_pack("{sOsssi}", "names", always, "action", "SCMP_ACT_ERRNO", "errnoRet", EPERM));
    if (json_array_size(allow))
        append_seccomp_entry(j, json_pack("{sOss}", "names", allow, "action", ALLOW));
    json_decref(always);
    json_decref(allow);
}

static int add_killable_flag(const struct join *j, json_t *section)
{
    json_t *f = json_object_get(section, "flags");
    if (strcmp(j->runtime, "crun") != 0)
        return 0;
    if (f && !json_is_array(f))
        return hw_fail(-EINVAL, "the flags of the seccomp section are not an array");
    for (size_t i = 0; i < json_array_size(f); i++)
        if (json_is_string(json_array_get(f, i)) && strcmp(json_string_value(json_array_get(f, i)), KILLABLE) == 0)
            return 0;
    if (!f)
        json_object_set_new(section, "flags", json_pack("[s]", KILLABLE));
    else
        json_array_append_new(f, json_string(KILLABLE));
    return 0;
}

/* Merges the filter into section, which is modified. */
static int merge_seccomp_section(json_t *section, const char *socket, const char *runtime)
{
    json_auto_t *out = json_array();
    struct join j = {.runtime = runtime, .dflt = get_seccomp_text(section, "defaultAction"), .out = out};
    const json_t *theirs = json_object_get(section, "syscalls");
    const char *path = get_seccomp_text(section, "listenerPath");
    int rc;
    if (!json_is_object(section) || !*j.dflt)
        return hw_fail(-EINVAL, "the seccomp section is invalid: it has no defaultAction");
    if (*path)
        return hw_fail(-EINVAL, "the seccomp section already has the listener %s, and a container can have only one",
                       path);
    if (theirs && !json_is_array(theirs) && !json_is_null(theirs))
        return hw_fail(-EINVAL, "the syscalls of the seccomp section are not an array");
    for (size_t i = 0; i < json_array_size(theirs); i++)
        if ((rc = merge_profile_entry(&j, json_array_get(theirs, i))) < 0)
            return rc;
    append_own_entries(&j, theirs);
    if (j.rc < 0 || (j.rc = add_killable_flag(&j, section)) < 0)
        return j.rc;
    if (json_object_set_new(section, "architectures", json_pack("[s]", NATIVE)) < 0 ||
        json_object_set_new(section, "listenerPath", json_string(socket)) < 0 ||
        json_object_set_new(section, "listenerMetadata", json_string(METADATA)) < 0 ||
        json_object_set(section, "syscalls", out) < 0)
        return hw_no_memory("the seccomp section");
    return 0;
}

int vb_filter_spec(json_t *linux_object, const char *socket, const char *runtime)
{
    const json_t *had = json_object_get(linux_object, "seccomp");
    if (strcmp(runtime, "crun") != 0 && strcmp(runtime, "runc") != 0)
        return hw_fail(-EINVAL, "the runtime must be crun or runc, not '%s'", runtime);
    if (!json_is_object(linux_object) || *socket != '/')
        return hw_fail(-EINVAL,
                       "the config.json must be for a Linux container, and the socket's path must be absolute");
    json_auto_t *section = had && !json_is_null(had) ? json_deep_copy(had) : json_pack("{ss}", "defaultAction", ALLOW);
    int rc = section ? merge_seccomp_section(section, socket, runtime) : hw_no_memory("the seccomp section");
    if (rc == 0 && json_object_set(linux_object, "seccomp", section) < 0)
        rc = hw_no_memory("the seccomp section");
    return rc;
}
