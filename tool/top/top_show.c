/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/json.h"
#include "tool/top/top.h"

#include <time.h>
#include <unistd.h>

char *top_rate(double rate, char *buf, size_t cap)
{
    static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    size_t u = 0;
    if (rate < 0.5) {
        snprintf(buf, cap, "0");
        return buf;
    }
    while (rate >= 999.5 && u + 1 < HW_ARRAY_LEN(units)) {
        rate /= 1000;
        u++;
    }
    snprintf(buf, cap, "%.*f%s", u == 0 || rate >= 99.95 ? 0 : rate >= 9.995 ? 1 : 2, rate, units[u]);
    return buf;
}

/* Formats a count in at most 5 columns, as in "12345", "123k" or "12M". */
static char *show_count(double n, char *buf, size_t cap)
{
    static const char units[] = "kMGTP";
    if (n < 99999.5) {
        snprintf(buf, cap, "%.0f", n);
        return buf;
    }
    size_t u = 0;
    for (n /= 1000; n >= 999.5 && units[u + 1]; u++)
        n /= 1000;
    snprintf(buf, cap, "%.0f%c", n, units[u]);
    return buf;
}

static char *show_rtt(double s, char *buf, size_t cap)
{
    if (s <= 0)
        snprintf(buf, cap, "-");
    else if (s < 0.0009995)
        snprintf(buf, cap, "%.0fus", s * 1e6);
    else
        snprintf(buf, cap, "%.*fms", s < 0.00995 ? 2 : s < 0.0995 ? 1 : 0, s * 1e3);
    return buf;
}

static void show_head(FILE *f, const struct top_view *v, const char *end)
{
    char clock[16] = "", a[16], b[16];
    time_t now = time(NULL);
    struct tm tm;
    double sent = 0, received = 0, rails = 0, up = 0;
    for (size_t i = 0; i < v->n; i++) {
        sent += v->process[i].sent;
        received += v->process[i].received;
        for (size_t k = 0; k < v->process[i].n_rails; k++) {
            rails += v->process[i].rail[k].rails;
            up += v->process[i].rail[k].up;
        }
    }
    if (localtime_r(&now, &tm))
        (void)strftime(clock, sizeof clock, "%T", &tm);
    fprintf(f, "hawser top %s  contexts %zu  rails %.0f/%.0f  sent %s  received %s%s", clock, v->n, up, rails,
            top_rate(sent, a, sizeof a), top_rate(received, b, sizeof b), end);
}

static void show_process(FILE *f, const struct top_process *p, const char *end)
{
    char ops[16], flight[16], failed[16], sent[16], received[16];
    const struct gather_source *s = p->source;
    if (s->state != GATHER_ANSWERED) {
        fprintf(f, "%7d %-12.12s %s%.50s%s", s->pid, "-",
                s->state == GATHER_SILENT ? "does not answer" : "bad answer: ", s->why, end);
        return;
    }
    fprintf(f, "%7d %-12.12s %-7.7s %5.0f %5.0f %6s %6s %6s %8s %8s%s", s->pid, s->process, s->kind, p->cpu * 100,
            p->threads * 100, show_count(p->ops, ops, sizeof ops), show_count(p->in_flight, flight, sizeof flight),
            show_count(p->failed, failed, sizeof failed), top_rate(p->sent, sent, sizeof sent),
            top_rate(p->received, received, sizeof received), end);
}

static void show_rail(FILE *f, const struct top_rail *r, const char *end)
{
    char nics[2 * PROM_LABEL + 2], up[32], again[16], lost[16], rtt[16], sent[16], received[16];
    snprintf(nics, sizeof nics, "%s%s%s", r->nic, *r->peer_nic ? ">" : "", r->peer_nic);
    snprintf(up, sizeof up, "%.0f/%.0f%s", r->up, r->rails, r->suspect > 0 ? "?" : "");
    fprintf(f, "  %-20.20s %-11.11s %5.5s %6s %6s %7s %8s %8s%s", r->peer, nics, up,
            show_count(r->retransmits, again, sizeof again), show_count(r->failovers, lost, sizeof lost),
            show_rtt(r->rtt, rtt, sizeof rtt), top_rate(r->sent, sent, sizeof sent),
            top_rate(r->received, received, sizeof received), end);
}

void top_show(FILE *f, const struct top_view *v, unsigned lines, const char *end)
{
    /* three lines of headings, and one line about omitted lines */
    size_t all = 0, shown = 0, most = lines > 4 ? lines - 4 : 1;
    for (size_t i = 0; i < v->n; i++)
        all += 1 + v->process[i].n_rails;
    most += all == most + 1;
    show_head(f, v, end);
    fprintf(f, "    PID PROCESS      KIND     CPU%%  THR%%  OPS/s FLIGHT FAILED     SENT RECEIVED%s", end);
    fprintf(f, "  PEER                 NICS           UP RETRAN FAILOV     RTT     SENT RECEIVED%s", end);
    for (size_t i = 0; i < v->n && shown < most; i++) {
        const struct top_process *p = &v->process[i];
        show_process(f, p, end);
        shown++;
        for (size_t k = 0; k < p->n_rails && shown < most; k++, shown++)
            show_rail(f, &p->rail[k], end);
    }
    if (v->n == 0)
        fprintf(f, "No hawser context was found%s%s%s", geteuid() == 0 ? "" : " for this user",
                geteuid() == 0 ? "" : "; root sees all users' contexts", end);
    if (shown < all)
        fprintf(f, "  .. and %zu more lines%s", all - shown, end);
}

/* ---- JSON ------------------------------------------------------------------------------------------------ */

static void say_rail(struct hw_json *j, const struct top_rail *r)
{
    hw_json_object(j, NULL);
    hw_json_str(j, "peer", r->peer);
    hw_json_str(j, "id", r->id);
    hw_json_str(j, "nic", r->nic);
    hw_json_str(j, "peer_nic", r->peer_nic);
    hw_json_double(j, "sent_bytes_per_second", r->sent);
    hw_json_double(j, "received_bytes_per_second", r->received);
    hw_json_double(j, "rails", r->rails);
    hw_json_double(j, "rails_up", r->up);
    hw_json_double(j, "rails_suspect", r->suspect);
    hw_json_double(j, "failovers", r->failovers);
    hw_json_double(j, "resent_bytes", r->resent);
    hw_json_double(j, "tcp_retransmits", r->retransmits);
    hw_json_double(j, "tcp_rtt_seconds", r->rtt);
    hw_json_end(j);
}

static void say_process(struct hw_json *j, const struct top_process *p)
{
    static const char *const states[] = {"answered", "silent", "bad"};
    hw_json_object(j, NULL);
    hw_json_i64(j, "pid", p->source->pid);
    hw_json_u64(j, "context", p->source->context);
    hw_json_u64(j, "uid", p->source->uid);
    hw_json_str(j, "state", states[p->source->state]);
    hw_json_str(j, "process", p->source->process);
    hw_json_str(j, "kind", p->source->kind);
    hw_json_double(j, "cpu", p->cpu);
    hw_json_double(j, "threads_cpu", p->threads);
    hw_json_double(j, "peers", p->peers);
    hw_json_double(j, "peers_lost", p->lost);
    hw_json_double(j, "operations_per_second", p->ops);
    hw_json_double(j, "operations_in_flight", p->in_flight);
    hw_json_double(j, "operation_failures", p->failed);
    hw_json_double(j, "sent_bytes_per_second", p->sent);
    hw_json_double(j, "received_bytes_per_second", p->received);
    hw_json_array(j, "rails");
    for (size_t i = 0; i < p->n_rails; i++)
        say_rail(j, &p->rail[i]);
    hw_json_end(j);
    hw_json_end(j);
}

int top_json(FILE *f, const struct top_view *v)
{
    struct hw_json j;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    hw_json_init(&j, f);
    hw_json_object(&j, NULL);
    hw_json_double(&j, "time", (double)t.tv_sec + (double)t.tv_nsec / 1e9);
    hw_json_double(&j, "seconds", v->seconds);
    hw_json_array(&j, "contexts");
    for (size_t i = 0; i < v->n; i++)
        say_process(&j, &v->process[i]);
    hw_json_end(&j);
    hw_json_end(&j);
    return hw_json_finish(&j);
}
