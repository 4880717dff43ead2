/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox status: lists containers and their NICs. */
#include "sandbox/move/move.h"
#include "sys/json.h"
#include "tool/opts.h"
#include "tool/sandbox/sandbox.h"

#include <string.h>

#define CMD "sandbox status"

static const char *name_place(const struct sb_status *s, const struct sb_status_nic *k)
{
    return k->there ? "there" : k->here ? "here" : s->elsewhere ? "unknown" : "lost";
}

struct out {
    struct hw_json j;
    const char *dir; /* value of --journal-dir, or NULL */
    unsigned bad;
};

static int print_text(const struct sb_status *s, void *arg)
{
    struct out *o = arg;
    bool unseen = false;
    o->bad += s->state >= SB_STATE_BROKEN;
    printf("%s: %s", s->id, sb_state_name(s->state));
    if (s->state == SB_STATE_UNREADABLE) {
        printf(": %s\n", s->error);
        return 0;
    }
    printf(", %s", s->netns);
    if (s->holder)
        printf(", process %d", (int)s->holder);
    putchar('\n');
    for (unsigned i = 0; i < s->n; i++) {
        printf("  %-15s %s", s->nic[i].name, name_place(s, &s->nic[i]));
        if (strcmp(s->nic[i].name, s->nic[i].as) != 0)
            printf(", as %s", s->nic[i].as);
        putchar('\n');
        unseen |= s->elsewhere && !s->nic[i].there;
    }
    if (unseen)
        printf("  unknown: the NICs come from a network namespace other than this one; run the command there\n");
    if (s->state == SB_STATE_ENDED || s->state == SB_STATE_BROKEN)
        printf("  to return the NICs: hawser sandbox restore %s%s%s\n", s->id, o->dir ? " --journal-dir " : "",
               o->dir ? o->dir : "");
    return 0;
}

static int print_container_json(const struct sb_status *s, void *arg)
{
    struct out *o = arg;
    o->bad += s->state >= SB_STATE_BROKEN;
    hw_json_object(&o->j, NULL);
    hw_json_str(&o->j, "id", s->id);
    hw_json_str(&o->j, "state", sb_state_name(s->state));
    hw_json_str(&o->j, "error", s->state == SB_STATE_UNREADABLE ? s->error : NULL);
    hw_json_str(&o->j, "netns", *s->netns ? s->netns : NULL);
    if (s->holder)
        hw_json_i64(&o->j, "holder", s->holder);
    else
        hw_json_null(&o->j, "holder");
    hw_json_array(&o->j, "nics");
    for (unsigned i = 0; i < s->n; i++) {
        hw_json_object(&o->j, NULL);
        hw_json_str(&o->j, "name", s->nic[i].name);
        hw_json_str(&o->j, "as", s->nic[i].as);
        hw_json_str(&o->j, "place", name_place(s, &s->nic[i]));
        hw_json_end(&o->j);
    }
    hw_json_end(&o->j);
    hw_json_end(&o->j);
    return 0;
}

struct status_args {
    const char *dir;
    bool json;
};

int sandbox_status_main(int argc, char **argv)
{
    static const struct opt rows[] = {
        OPT_FLAG("json", 'j', struct status_args, json, "print a JSON array of containers, each with its NICs"),
        OPT_TEXT("journal-dir", 0, "DIR", struct status_args, dir,
                 "folder of the journals (default: " SB_JOURNAL_DIR ")"),
        {0},
    };
    static const struct opts o = {
        .cmd = CMD,
        .args = "[ID] [OPTION...]",
        .about = "Shows, from the journals, the containers that have NICs of this machine, and where each NIC is: "
                 "there\n(in the container), here (on the host), lost, or unknown (not visible from this network "
                 "namespace). Exit status: 1 if a move or restore was "
                 "interrupted or has failed, or a journal is unreadable.",
        .rows = rows,
        .most = 1,
        .too_many = "takes at most one ID"};
    struct status_args a = {0};
    struct out out = {.bad = 0};
    int rc = opts_parse(&o, &a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    const char *of = optind < argc ? argv[optind] : NULL;
    out.dir = a.dir;
    if (a.json) {
        hw_json_init(&out.j, stdout);
        hw_json_array(&out.j, NULL);
    }
    rc = sb_status(a.dir, of, a.json ? print_container_json : print_text, &out);
    if (a.json) {
        hw_json_end(&out.j);
        if (hw_json_finish(&out.j) < 0)
            return tool_fail(CMD, "writing the JSON failed");
    }
    if (rc == -EINVAL)
        return tool_usage(CMD, "%s", hw_error());
    if (rc < 0)
        return tool_fail(CMD, "%s", hw_error());
    return out.bad ? TOOL_FAILED : TOOL_OK;
}
