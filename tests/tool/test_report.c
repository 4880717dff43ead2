/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the HTML report is well-formed, even for unusual measurements, and that unusable input causes errors. */
#include "tests/tap.h"

#include "tool/page/svg.h"
#include "tool/report/report.h"
#include "tool/report/report_data.h"
#include "tool/report/report_text.h"

#include <ctype.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/hawser-report-XXXXXX";
static char in_path[64], out_path[64];

static char *slurp(const char *path)
{
    FILE *f = fopen(path, "re");
    char *text = NULL;
    size_t cap = 0;
    if (!f)
        return NULL;
    if (getdelim(&text, &cap, '\0', f) < 0) { /* a page contains no NUL, so this reads the whole page */
        free(text);
        text = NULL;
    }
    fclose(f);
    return text;
}

/* Returns a description of the first markup error, or NULL: a tag closed out of order, a bare &, < or > in text, or an
 * unterminated tag. */
static const char *unbalanced(const char *p)
{
    static const char *const empty[] = {"meta", "br"};
    static char why[160];
    char open[64][16];
    size_t depth = 0;
    for (; *p; p++) {
        if (*p == '&') {
            size_t n = strcspn(p, ";");
            if (n > 6 || !p[n])
                return snprintf(why, sizeof(why), "bare &: %.40s", p), why;
            continue;
        }
        if (*p == '>')
            return snprintf(why, sizeof(why), "bare >: %.40s", p), why;
        if (*p != '<' || p[1] == '!') {
            p += *p == '<' ? strcspn(p, ">") : 0;
            continue;
        }
        const char *start = p++;
        bool close = *p == '/';
        p += close;
        size_t n = 0;
        char name[16];
        while (isalnum((unsigned char)*p) && n < sizeof(name) - 1)
            name[n++] = *p++;
        name[n] = '\0';
        if (!n)
            return snprintf(why, sizeof(why), "bare <: %.40s", start), why;
        while (*p && *p != '>' && *p != '/') { /* attributes: name="value" */
            if (*p == '"') {
                p += 1 + strcspn(p + 1, "\"<");
                if (*p != '"')
                    return snprintf(why, sizeof(why), "attribute without end: %.40s", start), why;
            }
            p++;
        }
        bool self = *p == '/';
        p += self;
        if (*p != '>')
            return snprintf(why, sizeof(why), "tag without end: %.40s", start), why;
        for (size_t i = 0; i < HW_ARRAY_LEN(empty); i++)
            self |= strcmp(name, empty[i]) == 0;
        if (close) {
            if (!depth || strcmp(open[--depth], name) != 0)
                return snprintf(why, sizeof(why), "</%s> closes <%s>: %.40s", name, depth ? open[depth] : "", start),
                       why;
        } else if (!self) {
            if (depth == HW_ARRAY_LEN(open))
                return "nested too deep";
            memcpy(open[depth++], name, sizeof(name));
            if (strcmp(name, "style") == 0) /* CSS is not markup */
                p = strstr(p, "</style>") - 1;
        }
    }
    return depth ? "something is left open" : NULL;
}

static size_t occurrences(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, what)) != NULL; p++)
        n++;
    return n;
}

static void put(const char *text, size_t len)
{
    FILE *f = fopen(in_path, "we");
    if (!f || fwrite(text, 1, len, f) != len || fclose(f) != 0)
        perror(in_path), exit(99);
}

/* Returns the page made from a file, after a check of its markup. The caller frees the page. */
static char *page(const char *path)
{
    unlink(out_path);
    int rc = report_html(path, out_path, NULL);
    if (!ok(rc == 0, "%s: made", path))
        diag("%s", hw_error());
    char *text = slurp(out_path);
    const char *why = text ? unbalanced(text) : "no file";
    ok(!why, "%s: well-formed%s%s", path, why ? ": " : "", why ? why : "");
    ok(text && !strstr(text, "nan") && !strstr(text, "inf\""), "%s: no number went astray", path);
    ok(text && !strstr(text, "<script") && !strstr(text, "http") && !strstr(text, "@import") && !strstr(text, "url("),
       "%s: no script and nothing to fetch", path);
    return text ? text : strdup("");
}

static char *fixture(const char *name)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/report_%s.jsonl", TEST_DATA, name);
    return page(path);
}

static char *from(const char *json)
{
    put(json, strlen(json));
    return page(in_path);
}

static void refused(const char *json, size_t len, int want, const char *line, const char *word)
{
    put(json, len);
    unlink(out_path);
    int rc = report_html(in_path, out_path, NULL);
    if (!ok(rc == want && strstr(hw_error(), line) && strstr(hw_error(), word), "refused: %s", hw_error()))
        diag("got %d, wanted %d with '%s' and '%s'", rc, want, line, word);
    ok(access(out_path, F_OK) != 0, "and no page was begun");
}
#define REFUSED(json, want, line, word) refused(json, sizeof(json) - 1, want, line, word)

/* Tests bench --gpus: each GPU has a series, and the line for all GPUs is not counted twice. */
static void test_gpus(void)
{
    char *t = from(
        "{\"op\":\"write\",\"mem\":\"cuda\",\"size\":1048576,\"gpu\":0,\"peer_gpu\":5,\"GBps\":1,\"verified_bytes\":"
        "3000}\n"
        "{\"op\":\"write\",\"mem\":\"cuda\",\"size\":1048576,\"gpu\":1,\"peer_gpu\":4,\"GBps\":1,\"verified_bytes\":"
        "3000}\n"
        "{\"op\":\"write\",\"mem\":\"cuda\",\"size\":1048576,\"gpu\":\"all\",\"GBps\":2,\"verified_bytes\":6000}\n");
    ok(strstr(t, "write, GPU 0 -&gt; 5") && strstr(t, "write, GPU 1 -&gt; 4"), "each pair of GPUs is named");
    ok(strstr(t, "write, all GPUs") && strstr(t, "6,000 bytes") && !strstr(t, "12,000"),
       "their sum is not added to itself");
    free(t);
    REFUSED("{\"op\":\"write\",\"size\":1,\"gpu\":\"some\"}\n", -EINVAL, ":1:", "gpu");
    REFUSED("{\"op\":\"write\",\"size\":1,\"gpu\":0}\n", -EINVAL, ":1:", "gpu");
}

static void test_pages(void)
{
    char *t = fixture("demo");
    ok(strstr(t, "2.71 <small>GB/s") && strstr(t, "1.06 <small>times"), "demo: throughput and ratio stand on top");
    ok(strstr(t, "34,896,609,280 bytes"), "demo: so do the verified bytes");
    is_int(occurrences(t, "class=\"mark\""), 2, "demo: both faults are marked");
    is_int(occurrences(t, "n0e1 taken down"), 2, "demo: the fault is named in the plot and below it");
    is_int(occurrences(t, "class=\"area c"), 4 + 4, "demo: four NICs, in plot and legend");
    ok(strstr(t, "class=\"bar c0\"") && strstr(t, "class=\"bar c0 raw\""), "demo: one size makes bars");
    free(t);

    t = fixture("sweep");
    is_int(occurrences(t, "class=\"line c0\""), 2 + 2, "sweep: write's throughput and one latency, plots and legends");
    is_int(occurrences(t, "class=\"line c0 raw\""), 2, "sweep: the rival's line, plot and legend");
    is_int(occurrences(t, "class=\"dot c0\""), 8, "sweep: a dot for each size");
    ok(!strstr(t, "class=\"mark\""), "sweep: no faults, no marks");
    ok(strstr(t, "All measurements: host memory"), "sweep: what all have in common is said once");
    ok(strstr(t, "64 MiB") && strstr(t, "no connection was lost"), "sweep: sizes are readable, nothing was lost");
    free(t);

    t = fixture("flaps");
    is_int(occurrences(t, "class=\"badge\""), 40, "flaps: 40 faults get numbers");
    is_int(occurrences(t, "class=\"marktext"), 4, "flaps: four get labels");
    free(t);

    t = fixture("single");
    ok(strstr(t, "4.20 <small>GB/s") && strstr(t, "no byte was verified"), "single: it does not claim a check");
    ok(strstr(t, "not measured"), "single: nor a ratio");
    free(t);

    t = fixture("hostile");
    ok(strstr(t, "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;&#39;"), "hostile: escaped");
    ok(!strstr(t, "\u202e") && !strchr(t, 1), "hostile: neither control characters nor turned text");
    ok(strstr(t, "bytes that differ from the data that was sent"), "hostile: bad bytes are said loudly");
    free(t);

    t = from("{\"op\":\"w\",\"size\":1,\"timeline\":[{\"t_s\":1,\"GBps\":2}]}\n"
             "{\"op\":\"w\",\"size\":2,\"timeline\":[{\"t_s\":1,\"GBps\":2}]}\n"
             "{\"op\":\"w\",\"size\":3,\"timeline\":[{\"t_s\":1,\"GBps\":2}]}\n");
    is_int(occurrences(t, "Throughput over time"), 2 + 2, "two quiet timelines are shown, heading and label each");
    ok(strstr(t, "1 more measurement over time is not shown"), "and that there is a third one is said");
    free(t);

    t = from(
        "\n  \r\n{\"op\":\"pingpong\",\"size\":8,\"p50_us\":4.7,\"p99_us\":null,\"GBps\":null,\"hist_us\":null}\n\n");
    ok(strstr(t, "4.70 <small></small>") == NULL && strstr(t, "4.70 \u00b5s"), "ping-pong alone: its latency leads");
    ok(!strstr(t, "<figure>"), "and no plot without points");
    free(t);
    t = from("{\"op\":\"write\",\"size\":0,\"GBps\":0,\"nics\":[\"a\",\"b\"],\"timeline\":[{\"t_s\":1,\"GBps\":0}],"
             "\"faults\":[{\"t_s\":5}],\"hist_us\":[[3,0],[3,2]]}");
    ok(strstr(t, "a,b") && strstr(t, "fault"), "size 0, one sample, a fault without text, no newline at the end");
    free(t);
}

static void test_many(void)
{
    FILE *f = fopen(in_path, "we");
    if (!f)
        exit(99);
    for (int i = 0; i < 300; i++)
        fprintf(f, "{\"op\":\"op%d\",\"size\":%d,\"GBps\":%d.5,\"hist_us\":[[%d,1]]}\n", i % 12, 1 << (i % 30), i, i);
    fprintf(f, "{\"op\":\"write\",\"size\":7,\"timeline\":[");
    for (int i = 0; i < 50000; i++)
        fprintf(f, "%s{\"t_s\":%d.5,\"nic\":\"e%d\",\"GBps\":1}", i ? "," : "", i / 5, i % 5);
    fprintf(f, "],\"hist_us\":[");
    for (int i = 0; i < 50000; i++)
        fprintf(f, "%s[%d,1]", i ? "," : "", i);
    fprintf(f, "]}\n");
    fclose(f);
    char *t = page(in_path);
    ok(strstr(t, "4 more series") || strstr(t, "5 more series"), "more series than colours: said so");
    struct stat st;
    ok(stat(out_path, &st) == 0 && st.st_size < 400000, "50,000 samples make a page of %lld bytes",
       (long long)st.st_size);
    free(t);
}

static void test_refusals(void)
{
    char line[64];
    REFUSED("", -ENODATA, in_path, "no measurement");
    REFUSED("\n\n", -ENODATA, in_path, "no measurement");
    REFUSED("{\"op\":\"write\",\"size\":1}\n\n{\"op\":\n", -EINVAL, ":3:", "invalid JSON");
    REFUSED("{\"op\":\"write\",\"size\":1} x\n", -EINVAL, ":1:", "invalid JSON");
    REFUSED("{\"op\":\"a\\u0000b\",\"size\":1}\n", -EINVAL, ":1:", "invalid JSON");
    REFUSED("{\"op\":\"\xff\",\"size\":1}\n", -EINVAL, ":1:", "invalid JSON");
    REFUSED("{\"op\":\"x\",\"size\":1}\0{}\n", -EINVAL, ":1:", "invalid JSON");
    REFUSED("[1,2]\n", -EINVAL, ":1:", "an array, but must be an object");
    REFUSED("{\"size\":1}\n", -EINVAL, ":1:", "no \"op\"");
    REFUSED("{\"op\":\"write\"}\n", -EINVAL, ":1:", "no \"size\"");
    REFUSED("{\"op\":\"write\",\"size\":\"big\"}\n", -EINVAL, ":1:", "\"size\" is a string");
    REFUSED("{\"op\":\"write\",\"size\":-1}\n", -EINVAL, ":1:", "must be at least 0");
    REFUSED("{\"op\":\"write\",\"size\":1e999}\n", -EINVAL, ":1:", "invalid JSON");
    REFUSED("{\"op\":7,\"size\":1}\n", -EINVAL, ":1:", "\"op\" is an integer");
    REFUSED("{\"op\":\"w\",\"size\":1,\"nics\":[1]}\n", -EINVAL, ":1:", "\"nics\"[0]");
    REFUSED("{\"op\":\"w\",\"size\":1,\"hist_us\":[[1,2],[3]]}\n", -EINVAL, ":1:", "\"hist_us\"[1]");
    REFUSED("{\"op\":\"w\",\"size\":1,\"hist_us\":{}}\n", -EINVAL, ":1:", "\"hist_us\" is an object");
    REFUSED("{\"op\":\"w\",\"size\":1,\"hist_us\":[[1,-2]]}\n", -EINVAL, ":1:", "negative");
    REFUSED("{\"op\":\"w\",\"size\":1,\"timeline\":[{\"t_s\":1}]}\n", -EINVAL,
            ":1:", "\"timeline\"[0] has no \"GBps\"");
    REFUSED("{\"op\":\"w\",\"size\":1,\"timeline\":[null]}\n", -EINVAL, ":1:", "\"timeline\"[0] is null");
    REFUSED("{\"op\":\"w\",\"size\":1,\"faults\":[{\"text\":\"x\"}]}\n", -EINVAL,
            ":1:", "\"faults\"[0] has no \"t_s\"");
    REFUSED("{\"op\":\"w\",\"size\":1,\"per_nic\":[{\"nic\":3}]}\n", -EINVAL, ":1:", "\"nic\" is an integer");

    char *deep = malloc(200001); /* must not overflow the stack */
    if (deep) {
        memset(deep, '[', 200000);
        deep[200000] = '\n';
        refused(deep, 200001, -EINVAL, ":1:", "invalid JSON");
        free(deep);
    }
    snprintf(line, sizeof(line), "%s/nothing", dir);
    is_int(report_html(line, out_path, NULL), -ENOENT, "no such file");
    ok(strstr(hw_error(), line) != NULL, "is named: %s", hw_error());
    put("{\"op\":\"write\",\"size\":1}\n", 24);
    is_int(report_html(in_path, dir, NULL), -EISDIR, "the page cannot be created");
    is_int(report_html(dir, out_path, NULL), -EISDIR, "a folder is no input");
    is_int(report_html(in_path, "/dev/full", NULL), -EIO, "a full disk is noticed");
}

static void test_text(void)
{
    char b[64];
    rep_text_size(65536, b, sizeof(b));
    is_str(b, "64 KiB", "64 KiB");
    rep_text_size(4294967303.0, b, sizeof(b));
    is_str(b, "4,294,967,303 B", "2^32 + 7");
    rep_text_us(12345, b, sizeof(b));
    is_str(b, "12.3 ms", "12.3 ms");
    rep_text_us(999.96, b, sizeof(b));
    is_str(b, "1.00 ms", "rounding carries into the next unit");
    rep_text_bytes(1.5e9, b, sizeof(b));
    is_str(b, "1.50 GB", "1.50 GB");
    rep_text_count(1234567, b, sizeof(b));
    is_str(b, "1,234,567", "thousands");
    double t[8];
    is_int(svg_ticks(0, 2.9, 5, t, 8), 3, "ticks 0, 1, 2");
    is_int(svg_log_ticks(3, 60, t, 8), 4, "ticks 5, 10, 20, 50");
    is_int(svg_ticks(1, 1, 5, t, 8), 0, "no span, no ticks");
}

int main(void)
{
    if (!mkdtemp(dir))
        return 99;
    snprintf(in_path, sizeof(in_path), "%s/in.jsonl", dir);
    snprintf(out_path, sizeof(out_path), "%s/out.html", dir);
    test_text();
    test_pages();
    test_gpus();
    test_many();
    test_refusals();
    unlink(in_path);
    unlink(out_path);
    rmdir(dir);
    return tap_done();
}
