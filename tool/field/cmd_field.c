/* SPDX-License-Identifier: Apache-2.0 */
/* hawser fieldtest: tests two nodes, by default within ten minutes, and writes two files for the authors of hawser. */
#include "tool/build.h"
#include "tool/field/field.h"
#include "tool/report/files.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const lists[] = {"findings", "problems", "parts", "paths", "validate", "bench", "rivals", "drill"};

static void begin_document(struct field *f)
{
    char date[16] = "";
    const time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm))
        (void)strftime(date, sizeof date, "%Y-%m-%d", &tm);
    f->doc = json_pack("{s:s,s:s,s:s,s:b,s:n,s:{s:f,s:b,s:b,s:b},s:{},s:{}}", "schema", FIELD_SCHEMA, "date", date,
                       "hawser", build_name(), "complete", 1, "seconds", "asked", "seconds", (double)f->total_ms / 1e3,
                       "drill", f->drill, "names", f->names, "ssh", f->ssh != NULL, "nodes", "doctor");
    for (size_t i = 0; i < HW_ARRAY_LEN(lists); i++)
        json_object_set_new(f->doc, lists[i], json_array());
}

/* Chooses the names PREFIX.json and PREFIX.html, and checks before any measurement that the folder is writable. */
static int name_files(const struct field *f, char **json, char **page)
{
    char prefix[64] = "";
    const time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm))
        (void)strftime(prefix, sizeof prefix, "hawser-field-%Y%m%d-%H%M%S", &tm);
    const char *to = f->out ? f->out : prefix;
    if (asprintf(json, "%s.json", to) < 0 || asprintf(page, "%s.html", to) < 0)
        return hw_no_memory("the names of the output files");
    return report_files_check(*json);
}

static int write_files(struct field *f, const char *json, const char *page)
{
    int rc = f->names ? 0 : field_mask(f);
    if (rc == 0)
        rc = field_write_json(f, json);
    return rc == 0 ? field_write_page(f, page) : rc;
}

static bool is_well(const struct field *f)
{
    bool well = true;
    for (int p = 0; p < FIELD_PARTS; p++)
        well = well && !f->part[p].wrong && !f->part[p].failed;
    return well;
}

static int run_fieldtest(struct field *f)
{
    HW_AUTO_FREE char *json = NULL;
    HW_AUTO_FREE char *page = NULL;
    json_t *finding;
    size_t i;
    int rc = name_files(f, &json, &page);
    if (rc == 0) {
        begin_document(f);
        rc = f->doc ? field_measure(f) : hw_no_memory("the result");
    }
    if (rc == 0)
        rc = write_files(f, json, page);
    if (rc < 0)
        return tool_failed(FIELD_CMD, rc);
    json_array_foreach(json_object_get(f->doc, "findings"), i, finding) printf("! %s\n", json_string_value(finding));
    const bool complete = json_is_true(json_object_get(f->doc, "complete"));
    printf("wrote %s and %s%s%s; read both files before you send them (see hawser(1))\n", json, page,
           complete ? "" : " (incomplete)", f->names ? " (with names and addresses)" : "");
    if (tool_stop)
        return tool_interrupted(FIELD_CMD, "%s has the results measured before the interruption", json);
    return is_well(f) ? TOOL_OK : TOOL_FAILED;
}

static const struct opt rows[] = {
    OPT_TEXT("out", 'o', "NAME", struct field, out,
             "write NAME.json and NAME.html (default: hawser-field-DATE-TIME in the current folder)"),
    OPT_TIME("duration", 't', "TIME", struct field, total_ms, 5000, 86400000,
             "aim to finish within this time (default: 10m)"),
    OPT_TIME("each", 0, "TIME", struct field, each_ms, 50, 3600000,
             "duration of one measurement (default: what the time limit allows, at most 10s)"),
    OPT_FLAG("drill", 0, struct field, drill,
             "at the end, disable each NIC of this node that is in use, one after another, for one second under load "
             "(needs root and two NICs)"),
    OPT_FLAG("names", 0, struct field, names, "keep host names and addresses in the files (default: replace them)"),
    OPT_TEXT("ssh", 0, "COMMAND", struct field, ssh,
             "run iperf3, NCCL and NIXL on the peer with COMMAND, such as \"ssh -oBatchMode=yes {}\", in which {} "
             "stands for the host"),
    OPT_TEXT("python", 0, "FILE", struct field, python, "run NIXL with this Python on both nodes (default: python3)"),
    OPT_GROUP(common_opts, struct field, common),
    {0},
};

static int parse_and_run(struct field *f, int argc, char **argv)
{
    static const struct opts o = {
        .cmd = FIELD_CMD,
        .args = "HOST[:PORT] [OPTION...]",
        .about =
            "Tests this node and a node that runs `hawser serve`, by default within about ten minutes, and writes a "
            "JSON\n"
            "file and an HTML file to send to the authors of hawser: inventory, doctor, validate and bench of each "
            "NIC\n"
            "and of all NICs, and plain sockets, iperf3, NCCL and NIXL for comparison. The files contain no keys. "
            "Without\n"
            "--names, host names and addresses are replaced. Exit status: 0 success, 1 a problem was found or a "
            "part\nfailed, 2 usage error, 128 plus the signal's number if interrupted.",
        .rows = rows,
        .least = 1,
        .most = 1,
        .too_few = "HOST is missing; start `hawser serve` on the other node first"};
    f->total_ms = 600000;
    f->port = HAWSER_DEFAULT_PORT;
    int rc = opts_parse(&o, f, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    f->target = argv[optind];
    if (opts_host(f->target, f->host, sizeof f->host, &f->port) < 0)
        return tool_usage(FIELD_CMD, "%s", hw_error());
    tool_catch_signals();
    return run_fieldtest(f);
}

int cmd_fieldtest(int argc, char **argv)
{
    struct field *f = calloc(1, sizeof *f);
    if (!f)
        return tool_fail(FIELD_CMD, "out of memory");
    int rc = parse_and_run(f, argc, argv);
    json_decref(f->doc);
    common_free(&f->common);
    free(f);
    return rc;
}
