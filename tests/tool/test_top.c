/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the parts of hawser top that need no process: texts that are refused, rates between two samples, and a table
 * that fits 80 columns. */
#include "tests/tap.h"
#include "tool/metrics/http.h"
#include "tool/top/top.h"

static int parse(const char *text, struct prom *p)
{
    return prom_parse(text, strlen(text), p);
}

static void test_texts(void)
{
    struct prom p;
    is_int(
        parse("# HELP x y\nhawser_peers 3\nhawser_sent_bytes_total{nic=\"eth1\",peer=\"a:1\",id=\"0\",new=\"x\"} 12.5\n"
              "hawser_from_the_future{a=\"b\"} 1\n# EOF\n",
              &p),
        0, "a text is read");
    is_int(p.n, 2, "its samples that are known");
    is_int(p.unknown, 1, "and one that is not");
    ok(p.sample[0].metric == HW_METRIC_PEERS && p.sample[0].value == 3, "a value");
    ok(p.sample[1].value == 12.5, "a fraction");
    is_str(p.sample[1].text, "12.5", "as it was written");
    is_str(p.sample[1].label[0], "a:1", "labels are found by name");
    is_str(p.sample[1].label[3], "", "one that is missing is empty");
    prom_free(&p);
    is_int(parse("hawser_peers 18446744073709551615\n# EOF\n", &p), 0, "a large one");
    is_str(p.sample[0].text, "18446744073709551615", "to the last digit");
    prom_free(&p);
    is_int(parse("hawser_operations_total{op=\"\033[2J\xc3\x28\"} 1\n# EOF\n", &p), 0, "what is not printable");
    is_str(p.sample[0].label[0], "?[2J?(", "is replaced");
    prom_free(&p);
    static const char *const bad[] = {"",
                                      "hawser_peers 1\n",
                                      "hawser_peers 1\n# EOF",
                                      "hawser_peers\n# EOF\n",
                                      "hawser_peers -1\n# EOF\n",
                                      "hawser_peers NaN\n# EOF\n",
                                      "hawser_peers 1e9\n# EOF\n",
                                      "hawser_peers 1 123\n# EOF\n",
                                      "hawser_peers{a=\"b\" 1\n# EOF\n",
                                      "hawser_peers{a=\"b\\\"\"} 1\n# EOF\n",
                                      "hawser_peers{a} 1\n# EOF\n",
                                      "{} 1\n# EOF\n"};
    for (size_t i = 0; i < HW_ARRAY_LEN(bad); i++) {
        is_int(parse(bad[i], &p), -EPROTO, "a text that is refused");
        prom_free(&p);
    }
    size_t len = 0;
    char *many = NULL;
    FILE *f = open_memstream(&many, &len);
    for (int i = 0; i <= PROM_SAMPLES; i++)
        fputs("hawser_peers 1\n", f);
    fputs(HW_METRICS_END, f);
    fclose(f);
    is_int(prom_parse(many, len, &p), -E2BIG, "one with too many samples");
    prom_free(&p);
    free(many);
}

#define ROW "{peer=\"10.0.0.2:20000\",id=\"0\",nic=\"eth1\",peer_nic=\"eth5\"} "

/* Adds the metrics of one context to g, as if the context had been polled. */
static void fill(struct gather *g, struct gather_source *s, const char *text, uint64_t when)
{
    *s = (struct gather_source){.pid = 4242, .process = "python3", .kind = "nixl", .state = GATHER_ANSWERED, .fd = -1};
    if (parse(text, &s->data) < 0) {
        printf("Bail out! %s\n", hw_error());
        exit(1);
    }
    *g = (struct gather){.source = s, .n = 1, .when = when};
}

static void test_rates(void)
{
    struct gather a, b;
    struct gather_source sa, sb;
    struct top_view v;
    fill(
        &a, &sa,
        "hawser_process_cpu_seconds_total 10\nhawser_cpu_seconds_total 5.0\nhawser_operations_total{op=\"write\"} 100\n"
        "hawser_operations_total{op=\"read\"} 7\nhawser_sent_bytes_total" ROW "1000\nhawser_received_bytes_total" ROW
        "500\n# EOF\n",
        1000 * HW_MS);
    /* the peer has restarted, so a counter of bytes is lower; and there is an additional peer */
    fill(
        &b, &sb,
        "hawser_process_cpu_seconds_total 11\nhawser_cpu_seconds_total 5.5\nhawser_operations_total{op=\"write\"} 300\n"
        "hawser_operations_total{op=\"read\"} 9\nhawser_operations_in_flight 2\n"
        "hawser_sent_bytes_total{peer=\"x\",id=\"1\",nic=\"eth1\",peer_nic=\"\"} 9000\n"
        "hawser_sent_bytes_total" ROW "400000001000\nhawser_received_bytes_total" ROW "200\nhawser_failovers_total" ROW
        "3\nhawser_tcp_rtt_seconds" ROW "0.000257\n# EOF\n",
        3000 * HW_MS);
    is_int(top_compare(&a, &b, &v), 0, "two looks are compared");
    const struct top_process *p = &v.process[0];
    ok(v.seconds == 2 && p->cpu == 0.5 && p->threads == 0.25, "CPU time per second");
    ok(p->ops == 101, "operations of all kinds per second");
    ok(p->in_flight == 2, "what is no counter is shown as it is");
    is_int(p->n_rails, 2, "two pairs of NICs");
    ok(p->rail[0].sent == 2e11, "the one with more bytes first");
    ok(p->rail[0].received == 100, "a counter that went back began anew");
    ok(p->rail[1].sent == 0, "one that is new has no rate yet");
    ok(p->rail[0].failovers == 3 && p->sent == 2e11, "what happened so far");
    char *text = NULL;
    size_t len = 0, longest = 0, lines = 0;
    FILE *f = open_memstream(&text, &len);
    top_show(f, &v, UINT32_MAX, "\n");
    fclose(f);
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1, lines++)
        longest = HW_MAX(longest, strcspn(line, "\n"));
    ok(longest <= 80, "no line is longer than 80 columns: %zu", longest);
    is_int(lines, 6, "a line for each process and rail below three");
    ok(strstr(text, "200GB/s") && strstr(text, "257us") && strstr(text, "eth1>eth5"), "what they say");
    free(text);
    f = open_memstream(&text, &len);
    top_show(f, &v, 6, "\n");
    fclose(f);
    lines = 0;
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
        lines++;
    ok(lines <= 6, "no more lines than asked for: %zu", lines);
    free(text);
    top_free(&v);
    is_int(top_compare(NULL, &b, &v), 0, "a first look");
    ok(v.process[0].sent == 0 && v.seconds == 0, "has no rates");
    top_free(&v);
    prom_free(&sa.data);
    prom_free(&sb.data);
}

static void test_numbers(void)
{
    static const struct {
        double rate;
        const char *text;
    } t[] = {{0, "0"},
             {0.4, "0"},
             {1, "1B/s"},
             {999, "999B/s"},
             {999.6, "1.00kB/s"},
             {12345, "12.3kB/s"},
             {1e6, "1.00MB/s"},
             {9.999e6, "10.0MB/s"},
             {99.96e6, "100MB/s"},
             {999.6e6, "1.00GB/s"},
             {4e11, "400GB/s"},
             {5e15, "5000TB/s"}};
    char buf[32];
    for (size_t i = 0; i < HW_ARRAY_LEN(t); i++) {
        is_str(top_rate(t[i].rate, buf, sizeof buf), t[i].text, "a rate");
    }
}

static void test_requests(void)
{
    struct http_request r;
    static const char get[] = "GET /metrics?x HTTP/1.1\r\nHost: a\r\n\r\n", post[] = "POST / HTTP/1.1\n\n";
    is_int(http_parse(get, sizeof get - 1, &r), 0, "a request");
    ok(r.method == HTTP_GET, "its method");
    is_str(r.path, "/metrics", "its path, without what was asked");
    is_int(http_parse(get, sizeof get - 2, &r), -EAGAIN, "without its end it may go on");
    is_int(http_parse(post, sizeof post - 1, &r), 0, "another method");
    ok(r.method == HTTP_OTHER, "is none of ours");
    is_int(http_parse("hello\n\n", 7, &r), -EPROTO, "something else");
}

int main(void)
{
    test_texts();
    test_rates();
    test_numbers();
    test_requests();
    return tap_done();
}
