/* SPDX-License-Identifier: Apache-2.0 */
/* hawser verbs audit: prints the audit file of agent and run, as text or unchanged. */
#include "tool/opts.h"
#include "tool/verbs/verbs.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CMD       "verbs audit"
#define LOOK_NS   200000000
#define LINE_MOST 65536 /* maximum bytes of a line; writers keep their lines below 4096 bytes */

static const char *get_audit_text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "?";
}

/* Prints a record, as in "2026-01-31T12:00:00.000Z web: ib_write_bw (4711) on rxe0: REG_MR length=1: EACCES by max_mrs
 * = 1: there is one". */
static void print_audit_record(const json_t *o)
{
    const json_t *left = json_object_get(o, "left_out");
    verbs_put(stdout, get_audit_text(o, "time"));
    if (left) {
        printf(" refusals that were not recorded: %lld\n", (long long)json_integer_value(left));
        return;
    }
    printf(" ");
    verbs_put(stdout, get_audit_text(o, "container"));
    printf(": ");
    verbs_put(stdout, get_audit_text(o, "program"));
    printf(" (%lld) on ", (long long)json_integer_value(json_object_get(o, "pid")));
    verbs_put(stdout, get_audit_text(o, "device"));
    static const struct {
        const char *before, *key;
    } rest[] = {{": ", "command"}, {": ", "errno"}, {" by ", "rule"}, {": ", "text"}};
    for (size_t i = 0; i < HW_ARRAY_LEN(rest); i++) {
        printf("%s", rest[i].before);
        verbs_put(stdout, get_audit_text(o, rest[i].key));
    }
    printf("\n");
}

struct reader {
    const char *path;
    FILE *f;
    bool json;
    char line[LINE_MOST];
    size_t len; /* bytes of an unfinished line */
    bool cut;   /* the line is too long */
    unsigned bad;
};

static void handle_audit_line(struct reader *r)
{
    json_error_t e;
    json_t *o = r->cut ? NULL : json_loadb(r->line, r->len, 0, &e);
    if (!json_is_object(o)) {
        r->bad++;
        fprintf(stderr, "hawser " CMD ": %s: a line is not an audit record\n", r->path);
    } else if (r->json) {
        fwrite(r->line, 1, r->len, stdout);
        putchar('\n');
    } else {
        print_audit_record(o);
    }
    json_decref(o);
    r->len = 0;
    r->cut = false;
}

/* Reads and handles all lines that are available. */
static void read_audit_lines(struct reader *r)
{
    for (int c; (c = getc(r->f)) != EOF;) {
        if (c == '\n')
            handle_audit_line(r);
        else if (r->len < sizeof(r->line))
            r->line[r->len++] = (char)c;
        else
            r->cut = true;
    }
    clearerr(r->f);
    fflush(stdout);
}

/* Continues after a rotation: opens the path again if it names a different file, and rewinds if the file has shrunk. */
static void look_again(struct reader *r)
{
    struct stat now, open;
    if (stat(r->path, &now) < 0 || fstat(fileno(r->f), &open) < 0)
        return;
    bool other = now.st_ino != open.st_ino || now.st_dev != open.st_dev;
    FILE *f = other ? fopen(r->path, "re") : NULL;
    if (f) {
        read_audit_lines(r);
        fclose(r->f);
        r->f = f;
        r->len = 0;
        r->cut = false;
    } else if (!other && ftello(r->f) > open.st_size) {
        rewind(r->f);
        r->len = 0;
        r->cut = false;
    }
}

static int show_audit(const char *path, bool follow, bool json)
{
    struct reader *r = calloc(1, sizeof(*r));
    if (!r)
        return tool_fail(CMD, "out of memory");
    *r = (struct reader){.path = path, .json = json, .f = strcmp(path, "-") == 0 ? stdin : fopen(path, "re")};
    if (!r->f) {
        int rc = tool_fail(CMD, "%s: %s%s", path, strerror(errno),
                           errno == ENOENT ? " (does the agent run with --audit?)" : "");
        free(r);
        return rc;
    }
    read_audit_lines(r);
    for (struct timespec t = {.tv_nsec = LOOK_NS}; follow && !tool_stop && !ferror(stdout);) {
        nanosleep(&t, NULL);
        look_again(r);
        read_audit_lines(r);
    }
    if (r->len)
        handle_audit_line(r); /* an unfinished last line */
    int rc = r->bad ? TOOL_FAILED : TOOL_OK;
    if (r->f != stdin)
        fclose(r->f);
    free(r);
    return rc;
}

struct audit_args {
    bool follow, json;
};

int verbs_audit_main(int argc, char **argv)
{
    static const struct opt rows[] = {
        OPT_FLAG("follow", 0, struct audit_args, follow, "keep printing new lines, until interrupted"),
        OPT_FLAG("json", 'j', struct audit_args, json, "print the JSON lines unchanged"),
        {0},
    };
    static const struct opts o = {
        .cmd = CMD,
        .args = "[FILE] [OPTION...]",
        .about = "Shows what --audit of `hawser verbs agent` and `run` has written: each refusal, with container, "
                 "program,\ncommand, rule and reason. FILE is - for standard input (default: " VERBS_AUDIT_FILE
                 ").\nExit status: 1 if a line is not an audit record, or FILE cannot be opened.",
        .rows = rows,
        .most = 1};
    struct audit_args a = {0};
    int rc = opts_parse(&o, &a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    tool_catch_signals();
    return show_audit(optind < argc ? argv[optind] : VERBS_AUDIT_FILE, a.follow, a.json);
}
