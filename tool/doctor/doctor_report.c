/* SPDX-License-Identifier: Apache-2.0 */
/* Stores, counts and prints the results of checks. */
#include "tool/doctor/doctor.h"
#include "tool/opts.h"
#include "tool/report/files.h"

#include "sys/json.h"
#include "tool/tool.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *dr_group_name(enum dr_group g)
{
    static const char *const name[DR_GROUPS] = {
        [DR_KERNEL] = "kernel", [DR_NIC] = "nic",   [DR_GPU] = "gpu",   [DR_LIMITS] = "limits", [DR_TCPX] = "tcpx",
        [DR_RDMA] = "rdma",     [DR_PAIR] = "pair", [DR_NCCL] = "nccl", [DR_NIXL] = "nixl"};
    return g < DR_GROUPS ? name[g] : "?";
}

const char *dr_outcome_name(enum dr_outcome o)
{
    static const char *const name[DR_OUTCOMES] = {"PASS", "WARN", "FAIL", "SKIP"};
    return o < DR_OUTCOMES ? name[o] : "?";
}

void dr_say(struct dr_report *d, enum dr_outcome o, const char *subject, const char *fmt, ...)
{
    if (d->n == d->cap) {
        size_t cap = d->cap ? 2 * d->cap : 64;
        struct dr_result *r = realloc(d->r, cap * sizeof *r);
        if (!r) {
            d->broken = true;
            return;
        }
        d->r = r;
        d->cap = cap;
    }
    struct dr_result *r = &d->r[d->n++];
    *r = (struct dr_result){.check = d->now, .outcome = o};
    snprintf(r->subject, sizeof r->subject, "%s", subject ? subject : "");
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->found, sizeof r->found, fmt, ap);
    va_end(ap);
}

void dr_mend(struct dr_report *d, const char *fmt, ...)
{
    if (d->n == 0)
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d->r[d->n - 1].mend, sizeof d->r->mend, fmt, ap);
    va_end(ap);
    dr_keep_of(d->r[d->n - 1].mend, d->r[d->n - 1].keep, sizeof d->r->keep);
}

const char *dr_env(const struct dr_machine *m, const char *name)
{
    size_t n = strlen(name);
    for (const char *const *e = m->env; e && *e; e++)
        if (strncmp(*e, name, n) == 0 && (*e)[n] == '=')
            return *e + n + 1;
    return NULL;
}

void dr_free(struct dr_report *d)
{
    free(d->r);
    *d = (struct dr_report){0};
}

size_t dr_count(const struct dr_report *d, enum dr_outcome o)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++)
        n += d->r[i].outcome == o;
    return n;
}

/* Returns true if two results of one check have the same outcome and text, for two subjects. Their commands may
 * differ by the name of the subject. */
static bool is_same_finding(const struct dr_result *a, const struct dr_result *b)
{
    return a->check == b->check && a->outcome == b->outcome && strcmp(a->found, b->found) == 0 && *a->subject &&
           *b->subject;
}

/* Returns true if result i repeats a finding that is already printed with an earlier subject. */
static bool said_before(const struct dr_report *d, size_t i)
{
    for (size_t k = i; k-- > 0 && d->r[k].check == d->r[i].check;)
        if (is_same_finding(&d->r[k], &d->r[i]))
            return true;
    return false;
}

static void print_one(FILE *out, const struct dr_report *d, size_t i, bool color, bool why)
{
    static const char *const paint[DR_OUTCOMES] = {"\033[32m", "\033[33m", "\033[1;31m", "\033[2m"};
    const struct dr_result *r = &d->r[i];
    fprintf(out, "%s%s%s  %-17s ", color ? paint[r->outcome] : "", dr_outcome_name(r->outcome), color ? "\033[0m" : "",
            r->check->id);
    const char *comma = "";
    for (size_t k = i; k < d->n && d->r[k].check == r->check && *r->subject; k++)
        if (k == i || is_same_finding(&d->r[k], r)) {
            fprintf(out, "%s%s", comma, d->r[k].subject);
            comma = ", ";
        }
    fprintf(out, "%s%s\n", *comma ? ": " : "", r->found);
    bool bad = r->outcome == DR_WARN || r->outcome == DR_FAIL;
    if (bad || why)
        fprintf(out, "      %-17s %swhy:%s  %s\n", "", color ? "\033[2m" : "", color ? "\033[0m" : "", r->check->why);
    for (size_t k = i; bad && k < d->n && d->r[k].check == r->check; k++) {
        if ((k != i && !is_same_finding(&d->r[k], r)) || !d->r[k].mend[0] ||
            (k != i && strcmp(d->r[k].mend, r->mend) == 0))
            continue;
        fprintf(out, "      %-17s %sfix:%s  %s\n", "", color ? "\033[2m" : "", color ? "\033[0m" : "", d->r[k].mend);
        if (d->r[k].keep[0])
            fprintf(out, "      %-17s %skeep:%s %s\n", "", color ? "\033[2m" : "", color ? "\033[0m" : "",
                    d->r[k].keep);
    }
}

void dr_print(FILE *out, const struct dr_report *d, bool color, bool why)
{
    for (size_t i = 0; i < d->n; i++)
        if (!said_before(d, i))
            print_one(out, d, i, color, why);
    const size_t warnings = dr_count(d, DR_WARN);
    fprintf(out, "\n%zu passed, %zu warning%s, %zu failed, %zu skipped\n", dr_count(d, DR_PASS), warnings,
            hw_plural(warnings), dr_count(d, DR_FAIL), dr_count(d, DR_SKIP));
}

void dr_write_json(struct hw_json *j, const char *key, const struct dr_report *d)
{
    hw_json_object(j, key);
    hw_json_str(j, "schema", "hawser-doctor-1");
    hw_json_str(j, "peer", d->pair ? d->pair->peer : NULL);
    hw_json_u64(j, "passed", dr_count(d, DR_PASS));
    hw_json_u64(j, "warnings", dr_count(d, DR_WARN));
    hw_json_u64(j, "failed", dr_count(d, DR_FAIL));
    hw_json_u64(j, "skipped", dr_count(d, DR_SKIP));
    hw_json_array(j, "checks");
    for (size_t i = 0; i < d->n; i++) {
        const struct dr_result *r = &d->r[i];
        hw_json_object(j, NULL);
        hw_json_str(j, "id", r->check->id);
        hw_json_str(j, "group", dr_group_name(r->check->group));
        hw_json_str(j, "title", r->check->title);
        hw_json_str(j, "outcome", dr_outcome_name(r->outcome));
        hw_json_str(j, "subject", *r->subject ? r->subject : NULL);
        hw_json_str(j, "found", r->found);
        hw_json_str(j, "why", r->check->why);
        hw_json_str(j, "mend", *r->mend ? r->mend : NULL);
        hw_json_str(j, "keep", *r->keep ? r->keep : NULL);
        hw_json_end(j);
    }
    hw_json_end(j);
    hw_json_end(j);
}

int dr_print_json(FILE *out, const struct dr_report *d)
{
    struct hw_json j;
    hw_json_init(&j, out);
    dr_write_json(&j, NULL, d);
    int rc = hw_json_finish(&j);
    return rc < 0 ? hw_wrap(rc, "writing the JSON") : 0;
}

static void write_dr_page(struct page *p, const void *arg)
{
    static const struct page_column heads[] = {
        {"Result", "PASS: good; WARN: could be better; FAIL: broken; SKIP: does not apply, or cannot be determined",
         true},
        {"Check", "`hawser doctor --list` shows all checks", true},
        {"On", "what was checked, such as a NIC, a GPU, a pair of NICs or a sysctl", true},
        {"Found", NULL, true},
        {"Why it matters", NULL, true},
        {"Fix", "usually a command that examines the problem, or fixes it, often only until the next boot", true}};
    static const char *const class[DR_OUTCOMES] = {"good", "warn", "bad", ""};
    static const char *const what[DR_OUTCOMES] = {"Passed", "Warnings", "Failed", "Skipped"};
    static const char *const note[DR_OUTCOMES] = {"good", "could be better", "broken",
                                                  "does not apply, or cannot be determined"};
    const struct dr_report *d = arg;
    page_cards(p);
    for (int o = 0; o < DR_OUTCOMES; o++) {
        char n[16];
        snprintf(n, sizeof n, "%zu", dr_count(d, (enum dr_outcome)o));
        page_card(p, what[o], n, "", dr_count(d, (enum dr_outcome)o) ? class[o] : "", note[o]);
    }
    page_cards_end(p);
    page_table(p, "Checks", "");
    page_heads(p, heads, HW_ARRAY_LEN(heads));
    for (size_t i = 0; i < d->n; i++) {
        const struct dr_result *r = &d->r[i];
        const bool bad = r->outcome == DR_WARN || r->outcome == DR_FAIL;
        page_row(p);
        page_text(p, dr_outcome_name(r->outcome), class[r->outcome]);
        page_text(p, r->check->id, "");
        page_text(p, r->subject, "");
        page_text(p, r->found, "w");
        page_text(p, bad ? r->check->why : NULL, "w");
        page_text(p, bad ? r->mend : NULL, "w");
        page_row_end(p);
    }
    page_table_end(p, NULL);
}

const struct opt dr_finish_opts[] = {
    OPT_FLAG("json", 'j', struct dr_finish, json, "print one JSON object instead of lines"),
    OPT_FLAG("why", 'w', struct dr_finish, why,
             "print for every result, not only for WARN and FAIL, why the check matters"),
    OPT_TEXT("report", 0, "FILE", struct dr_finish, report, "write one HTML file with the results of all checks"),
    {0},
};

int dr_finish(struct dr_report *d, int rc, const char *cmd, const struct dr_finish *how)
{
    struct report_files files = {0};
    char title[64];
    if (rc >= 0)
        rc = report_files_open(&files, NULL, how->report);
    if (rc >= 0 && how->json)
        rc = dr_print_json(stdout, d);
    else if (rc >= 0)
        dr_print(files.shown, d, !how->report && isatty(STDOUT_FILENO) && !getenv("NO_COLOR"), how->why);
    if (how->run)
        files.run = *how->run;
    snprintf(title, sizeof title, "hawser %s", cmd);
    if (rc >= 0)
        rc = report_files_page(&files, title, write_dr_page, d);
    int exit = rc < 0 ? tool_failed(cmd, rc) : dr_count(d, DR_FAIL) > 0 ? TOOL_FAILED : TOOL_OK;
    (void)report_files_close(&files);
    dr_free(d);
    return exit;
}
