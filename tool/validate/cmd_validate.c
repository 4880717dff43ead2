/* SPDX-License-Identifier: Apache-2.0 */
/* hawser validate: opens N channels at once on a NIC. Each channel must be up and carry data both ways, and all data
 * must be correct. */
#include "base/knob.h"
#include "base/size.h"
#include "tool/load/buffer.h"
#include "tool/load/detour.h"
#include "tool/load/gpus.h"
#include "tool/load/stats.h"
#include "tool/opts.h"
#include "tool/peer/session.h"
#include "tool/report/files.h"
#include "tool/report/output.h"
#include "tool/validate/validate_json.h"
#include "tool/validate/validate_page.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define MAX_SLOTS 16384          /* maximum operations of a round, fewer than a peer accepts */
#define MAX_BYTES (512ull << 20) /* maximum bytes of a round, unless one operation per channel needs more */

struct validate {
    struct common common;
    char host[256], nic[HAWSER_NIC_NAME];
    uint16_t port;
    uint64_t channels, size, timeout_ms, window;
    int gpu;           /* GPU of this node, or BUFFER_HOST */
    uint16_t peer_gpu; /* GPU of the serving node, or TP_HOST */
    const char *gpus_text, *map;
    struct gpus gpus;
    struct session s;
    uint64_t seed, stride;
    /* one slot for each operation of a round, so that no two operations receive into the same bytes */
    struct buffer out, in;
    struct hawser_region region;
    struct hawser_channel_stats ch[TP_MAX_CHANNELS];
    size_t n_ch, n_open; /* n_open: channels that are not proved yet, but may be after another round */
    uint64_t bad_out, bad_in;
    /* --gpus without --nic: the NIC may differ from the NIC of the route to HOST */
    bool many;
    struct tp_nic own[TP_MAX_NICS], peer[TP_MAX_NICS]; /* traffic of the NICs */
    size_t n_own, n_peer;
    struct verdict here, there;
    /* NULL if not requested; with json "-", JSON goes to standard output and text to standard error */
    const char *json, *report;
    struct report_files files;
    FILE *text, *json_out; /* owned by files */
    struct validate_page page;
    uint64_t moved;        /* bytes received by each side */
    struct hw_knobs knobs; /* knobs in force */
};

/* Finds the NIC whose address the kernel would use to reach host. Returns 0 or -errno. */
static int route_nic(const char *host, char nic[HAWSER_NIC_NAME])
{
    const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
    struct addrinfo *ai = NULL;
    int e = getaddrinfo(host, "20000", &hints, &ai);
    if (e)
        return hw_fail(-EHOSTUNREACH, "looking up %s: %s", host, gai_strerror(e));
    struct sockaddr_storage own = {0};
    socklen_t len = sizeof own;
    /* connecting a datagram socket sends nothing: it only queries the routing table */
    int fd = socket(ai->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int rc = 0;
    if (fd < 0 || connect(fd, ai->ai_addr, ai->ai_addrlen) < 0 || getsockname(fd, (struct sockaddr *)&own, &len) < 0)
        rc = hw_fail(-errno, "finding the route to %s: %s", host, strerror(errno));
    hw_close(&fd);
    freeaddrinfo(ai);
    if (rc < 0)
        return rc;
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) < 0)
        return hw_fail(-errno, "listing the NICs' addresses: %s", strerror(errno));
    rc = -ENODEV;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != own.ss_family)
            continue;
        const void *a, *b;
        size_t n;
        if (own.ss_family == AF_INET) {
            a = &((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr;
            b = &((const struct sockaddr_in *)(const void *)&own)->sin_addr;
            n = sizeof(struct in_addr);
        } else {
            a = &((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr;
            b = &((const struct sockaddr_in6 *)(const void *)&own)->sin6_addr;
            n = sizeof(struct in6_addr);
        }
        /* 127.0.0.2 and similar addresses belong to lo without being listed */
        bool lo = own.ss_family == AF_INET && (i->ifa_flags & IFF_LOOPBACK) && *(const uint8_t *)b == 127;
        if (lo || memcmp(a, b, n) == 0) {
            snprintf(nic, HAWSER_NIC_NAME, "%s", i->ifa_name);
            rc = 0;
            break;
        }
    }
    freeifaddrs(list);
    if (rc < 0)
        return hw_fail(rc, "no NIC has the source address of the route to %s: use --nic", host);
    return 0;
}

/* Replaces the memory on both sides with memory for `slots` concurrent operations. */
static int prepare_validate_slots(struct validate *v, uint32_t slots)
{
    (void)buffer_free(&v->out);
    (void)buffer_free(&v->in);
    int rc = buffer_make(&v->out, v->s.h, v->gpu, v->size, v->stride, slots, false, v->seed);
    if (rc == 0)
        rc = buffer_make(&v->in, v->s.h, v->gpu, v->size, v->stride, slots, false, v->seed);
    if (rc < 0)
        return rc;
    struct tp_request q = {.type = TP_PREPARE,
                           .op = TP_VALIDATE,
                           .slots = slots,
                           .depth = HW_MIN(slots, (uint32_t)TP_MAX_DEPTH),
                           .size = v->size,
                           .stride = v->stride,
                           .seed = v->seed,
                           .gpu = v->peer_gpu};
    struct tp_reply r;
    rc = session_call(&v->s, &q, &r, session_patience_ms(v->out.len));
    return rc < 0 ? rc : hawser_import(r.key, &v->region);
}

/* Writes the slots of iterations [first, first+slots) to the server, or reads them back, all at once. */
static int transfer_slots(struct validate *v, bool back, uint64_t first, uint64_t deadline)
{
    uint64_t n = v->out.slots, now = hw_now();
    HW_AUTO_FREE hawser_op **op = calloc(n, sizeof(hawser_op *));
    if (!op)
        return hw_no_memory("%" PRIu64 " operations", n);
    int rc = 0, ms = now < deadline ? (int)((deadline - now) / HW_MS) + 1 : 1;
    const struct hawser_op_options o = {.size = sizeof o, .timeout_ms = ms};
    struct buffer *b = back ? &v->in : &v->out;
    for (uint64_t i = 0; i < n && rc == 0; i++) {
        uint64_t at = buffer_offset(b, first + i);
        const struct hawser_vec vec = {
            .mem = b->mem, .offset = at, .length = v->size, .region = &v->region, .remote_offset = at};
        rc = back ? hawser_read(v->s.peer, &vec, 1, &o, &op[i]) : hawser_write(v->s.peer, &vec, 1, &o, &op[i]);
    }
    for (uint64_t i = 0; i < n; i++) {
        if (rc == 0)
            rc = session_await(&v->s, op[i], ms + 1000);
        else
            session_drop(op[i]);
    }
    return rc;
}

static int round_trip(struct validate *v, uint64_t first, uint64_t deadline)
{
    struct tp_nic before[TP_MAX_NICS], after[TP_MAX_NICS], there[TP_MAX_NICS];
    size_t n_before = TP_MAX_NICS, n_after = TP_MAX_NICS, n_there;
    uint64_t checked = 0, at = 0, bad = 0;
    uint32_t n = v->out.slots;
    const bool devmem = stats_has_devmem(v->knobs.transport);
    int patience = session_patience_ms(v->out.len);
    struct tp_request q = {.type = TP_BEGIN, .first = first, .count = n};
    struct tp_reply r = {0};
    int rc = buffer_fill(&v->out, first, n);
    if (rc < 0 || (rc = session_call(&v->s, &q, &r, patience)) < 0)
        return rc;
    n_there = r.n_nics;
    memcpy(there, r.nic, sizeof there);
    rc = stats_nics(v->s.peer, devmem, before, &n_before);
    if (rc < 0)
        return rc;
    rc = transfer_slots(v, false, first, deadline);
    if (rc < 0 || (rc = buffer_clear(&v->in)) < 0)
        return rc;
    /* before TP_END, so that the server's counters include both directions */
    rc = transfer_slots(v, true, first, deadline);
    if (rc < 0)
        return rc;
    q = (struct tp_request){.type = TP_END, .first = first, .count = n};
    rc = session_call(&v->s, &q, &r, patience);
    if (rc < 0)
        return rc;
    stats_add(v->peer, &v->n_peer, TP_MAX_NICS, there, n_there, r.nic, r.n_nics);
    v->bad_out += r.bad;
    if (r.checked != v->size * n)
        return hw_fail(-EIO, "the other node checked %" PRIu64 " of %" PRIu64 " bytes", r.checked, v->size * n);
    v->moved += v->size * n;
    rc = stats_nics(v->s.peer, devmem, after, &n_after);
    if (rc < 0)
        return rc;
    stats_add(v->own, &v->n_own, TP_MAX_NICS, before, n_before, after, n_after);
    rc = buffer_check(&v->in, first, n, &bad, &checked, &at);
    if (rc < 0)
        return rc;
    v->bad_in += bad;
    return v->bad_out + v->bad_in
               ? hw_fail(-EIO,
                         "%" PRIu64 " bytes arrived with wrong contents on the other node, and %" PRIu64
                         " on this node",
                         v->bad_out, v->bad_in)
               : 0;
}

static size_t count_good_channels(struct validate *v)
{
    size_t good = 0;
    v->n_open = 0;
    v->n_ch = TP_MAX_CHANNELS;
    if (hawser_channel_stats(v->s.peer, v->ch, &v->n_ch) < 0)
        v->n_ch = 0;
    v->n_ch = HW_MIN(v->n_ch, (size_t)TP_MAX_CHANNELS);
    for (size_t i = 0; i < v->n_ch; i++) {
        const bool is_good = validate_channel_fault(&v->ch[i]) == NULL;
        good += is_good;
        v->n_open += !is_good && v->ch[i].lost == 0;
    }
    return good;
}

static int run_round_trips(struct validate *v, hawser *h, size_t *good)
{
    uint64_t deadline = hw_deadline((int)v->timeout_ms), first = 0;
    const bool gpus = v->gpu != BUFFER_HOST;
    const struct hawser_connect_options o = {.size = sizeof o,
                                             .nics = v->nic,
                                             .channels = (uint32_t)v->channels,
                                             .flags = v->many ? 0 : HAWSER_ONLY_DIALLED,
                                             .gpu = gpus ? HAWSER_GPU(v->gpu) : 0,
                                             .peer_gpu = gpus ? HAWSER_GPU(v->peer_gpu) : 0};
    if (getrandom(&v->seed, sizeof v->seed, 0) != (ssize_t)sizeof v->seed)
        return hw_fail(-EIO, "the kernel returned no random bytes");
    int rc = session_open(&v->s, h, v->host, v->port, &o);
    if (rc < 0)
        return rc;
    v->stride = (v->size + 4095) / 4096 * 4096;
    /* Channels take operations when they are free, so a few channels may take all of them. Each round has twice as many
     * operations as the previous one, up to a maximum, until every channel that was not lost has carried data both
     * ways, or until the time is up. */
    uint32_t slots = (uint32_t)v->channels, most = (uint32_t)HW_MIN(MAX_BYTES / v->stride, (uint64_t)MAX_SLOTS);
    rc = prepare_validate_slots(v, slots);
    while (rc == 0) {
        if (session_stopped(&v->s))
            return hw_fail(-EINTR, "interrupted"); /* the channels of complete rounds are proved */
        rc = round_trip(v, first, deadline);
        first += slots;
        const size_t proved = count_good_channels(v);
        *good = rc == -EINTR ? *good : proved;
        if (rc < 0 || *good >= v->channels || !v->n_open || hw_now() > deadline)
            break;
        if (slots > most / 2)
            continue;
        rc = prepare_validate_slots(v, 2 * slots);
        if (rc == 0) {
            slots *= 2;
        } else if (rc == -ENOMEM) { /* no memory on one of the nodes: keep the previous number of slots */
            most = slots;
            rc = prepare_validate_slots(v, slots);
        }
    }
    return rc;
}

static void print_own_counts(const struct validate *v, const char *side, const struct tp_nic *nics, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (nics[i].has_devmem_pkts) {
            fprintf(v->text, "%5s %-15s", side, nics[i].nic);
            output_own_count(v->text, &nics[i]);
        }
}

/* Prints the NICs' own counters and, for GPUs, how the data arrived. Returns false if GPUs are used, the knob
 * require_direct is set, and some data did not use the device path. */
static bool print_verdict(struct validate *v)
{
    char who[40];
    print_own_counts(v, "here", v->own, v->n_own);
    print_own_counts(v, "there", v->peer, v->n_peer);
    if (v->gpu == BUFFER_HOST)
        return true;
    snprintf(who, sizeof who, "GPU %d -> %d", v->gpu, (int)v->peer_gpu);
    verdict_print(v->text, who, "here", &v->here);
    verdict_print(v->text, who, "there", &v->there);
    return !v->knobs.require_direct || (v->here.passed && v->there.passed);
}

static int write_validate_json(struct validate *v, size_t good, const char *why)
{
    const struct validated d = {.host = v->host,
                                .nic = v->nic,
                                .why = why,
                                .gpus = v->gpu != BUFFER_HOST,
                                .gpu = v->gpu,
                                .peer_gpu = v->peer_gpu,
                                .here = v->here,
                                .there = v->there,
                                .channels = v->channels,
                                .proved = good,
                                .own = v->own,
                                .n_own = v->n_own,
                                .peer_nics = v->peer,
                                .n_peer = v->n_peer,
                                .peer = v->s.peer};
    return v->json_out ? validate_json(v->json_out, &d) : 0;
}

static void print_validated_channels(const struct validate *v)
{
    for (size_t i = 0; i < v->n_ch; i++) {
        const struct hawser_channel_stats *c = &v->ch[i];
        const char *f = validate_channel_fault(c);
        fprintf(v->text,
                "channel %-2u %s %s -> %s %s  sent %" PRIu64 " bytes in %" PRIu64 " chunks, received %" PRIu64
                " in %" PRIu64 "  %s%s\n",
                c->index, c->nic, c->local, c->remote, c->peer_nic, c->tx_bytes, c->tx_chunks, c->rx_bytes,
                c->rx_chunks,
                !f          ? "OK"
                : tool_stop ? "not proved: it "
                            : "FAILED: it ",
                f ? f : "");
    }
}

/* Validates one NIC with host memory or with a pair of GPUs, and reports the results. Returns TOOL_OK or TOOL_FAILED.
 */
static int run_nic_validation(struct validate *v, hawser *h)
{
    size_t good = 0;
    char size[32];
    fprintf(v->text, "# ");
    if (v->gpu != BUFFER_HOST)
        fprintf(v->text, "GPU %d -> %d: ", v->gpu, (int)v->peer_gpu);
    fprintf(v->text, "%" PRIu64 " channel%s on %s to %s, %s each way per channel in the first round\n", v->channels,
            hw_plural(v->channels), v->nic, v->host, hw_format_size(v->size, size, sizeof size));
    fflush(v->text);
    v->n_ch = 0;
    v->bad_out = v->bad_in = 0;
    v->n_own = v->n_peer = 0;
    v->moved = 0;
    int rc = run_round_trips(v, h, &good);
    char why[HW_ERR_TEXT > DETOUR_TEXT ? HW_ERR_TEXT : DETOUR_TEXT];
    snprintf(why, sizeof why, "%s", rc < 0 ? hw_error() : "");
    if (v->s.peer && v->n_ch == 0)
        good = count_good_channels(v);
    print_validated_channels(v);
    if (rc < 0 && rc != -EINTR)
        good = 0; /* after an error, no channel counts as proved */
    good = HW_MIN(good, v->channels);
    char detour[DETOUR_TEXT];
    bool astray = rc == 0 && detour_find(v->own, v->n_own, v->peer, v->n_peer, detour, sizeof detour);
    v->here = verdict_of(v->own, v->n_own, v->moved, v->size);
    v->there = verdict_of(v->peer, v->n_peer, v->moved, v->size);
    const bool direct = rc < 0 || print_verdict(v);
    if (astray || !direct)
        good = 0; /* this traffic proves no channel */
    fprintf(v->text, "Success: %zu / %" PRIu64 "\n", good, v->channels);
    fflush(v->text);
    if (astray)
        snprintf(why, sizeof why, "%s", detour);
    else if (rc == 0 && !direct)
        snprintf(why, sizeof why,
                 "GPU %d -> %d: some data did not use the device path, which --require-direct requires", v->gpu,
                 (int)v->peer_gpu);
    else if (rc == 0 && good < v->channels && v->n_ch && !v->n_open)
        snprintf(why, sizeof why, "%" PRIu64 " of %" PRIu64 " connections were lost or not opened", v->channels - good,
                 v->channels);
    else if (rc == 0 && good < v->channels)
        snprintf(why, sizeof why, "%" PRIu64 " of %" PRIu64 " connections were not verified within %" PRIu64 " ms",
                 v->channels - good, v->channels, v->timeout_ms);
    if (v->report)
        validate_page_add(&v->page, v->nic, v->ch, v->n_ch, good, v->channels, why);
    if (*why && rc != -EINTR)
        tool_fail("validate", "%s", why);
    const int wrote = write_validate_json(v, good, why);
    if (wrote < 0)
        tool_fail("validate", "%s", hw_error());
    buffer_free(&v->out);
    buffer_free(&v->in);
    if (v->report && v->s.peer && !tool_stop)
        run_ask(&v->files.run, &v->s, v->host);
    session_close(&v->s);
    return rc == 0 && wrote == 0 && good == v->channels ? TOOL_OK : TOOL_FAILED;
}

/* Validates every pair of GPUs over each of its planned NICs. */
static int validate_gpus(struct validate *v, hawser *h, const char *route)
{
    bool wrapped;
    int there;
    size_t n = 0, good = 0;
    int rc = gpus_fit(&v->gpus, h, v->host, v->port, v->nic[0] ? v->nic : NULL, v->map, &there, &wrapped);
    if (rc < 0)
        return tool_fail("validate", "%s", hw_error());
    if (wrapped)
        fprintf(v->text, "# the serving node has %d GPU%s: higher GPU numbers wrap around to GPU 0\n", there,
                hw_plural(there));
    v->many = !v->nic[0];
    for (size_t i = 0; i < v->gpus.n && !tool_stop; i++) {
        const struct gpu_pair *p = &v->gpus.pair[i];
        const char *at = p->nics[0] ? p->nics : route;
        v->gpu = p->gpu;
        v->peer_gpu = (uint16_t)p->peer;
        for (size_t len; *at && !tool_stop; at += len + (at[len] == ',')) {
            len = strcspn(at, ",");
            snprintf(v->nic, sizeof v->nic, "%.*s", (int)len, at);
            n++;
            good += run_nic_validation(v, h) == TOOL_OK;
        }
    }
    fprintf(v->text, "Successful combinations of GPUs and NICs: %zu of %zu\n", good, n);
    return good == n ? TOOL_OK : TOOL_FAILED;
}

static int open_validation(struct validate *v, char route[HAWSER_NIC_NAME], hawser **h)
{
    int rc = report_files_open(&v->files, v->json, v->report);
    v->text = v->files.shown;
    v->json_out = v->json ? v->files.lines : NULL;
    if (rc < 0)
        return rc;
    if (!v->nic[0] && (rc = route_nic(v->host, route)) < 0)
        return rc;
    rc = hw_knobs_load(&v->knobs, (const char *const *)v->common.knobs);
    return rc < 0 ? rc : common_open(&v->common, h);
}

static int run_validate_command(struct validate *v)
{
    hawser *h = NULL;
    char route[HAWSER_NIC_NAME] = "";
    int rc = open_validation(v, route, &h);
    if (rc < 0) {
        rc = tool_fail("validate", "%s", hw_error());
    } else if (v->gpus_text) {
        rc = validate_gpus(v, h, route);
    } else {
        if (route[0])
            memcpy(v->nic, route, sizeof v->nic);
        rc = run_nic_validation(v, h);
    }
    hawser_close(h);
    snprintf(v->files.run.peer, sizeof v->files.run.peer, "%s", v->host);
    int wrote = v->page.n ? report_files_page(&v->files, "hawser validate", validate_page_write, &v->page) : 0;
    const int closed = report_files_close(&v->files);
    wrote = wrote < 0 ? wrote : closed;
    if (wrote < 0)
        rc = tool_fail("validate", "%s", hw_error());
    validate_page_free(&v->page);
    return tool_stop ? tool_interrupted("validate", "the results of the completed rounds are above") : rc;
}

static int parse_nic(void *args, const char *text)
{
    struct validate *v = args;
    int rc = opts_nics(text);
    if (rc < 0)
        return rc;
    if (strchr(text, ','))
        return hw_fail(-EINVAL, "must be one NIC, not '%s'", text);
    snprintf(v->nic, sizeof v->nic, "%s", text);
    return 0;
}

static int parse_validate_gpus(void *args, const char *text)
{
    struct validate *v = args;
    return gpus_parse(v->gpus_text = text, &v->gpus);
}

static const struct opt rows[] = {
    OPT_NUMBER("channels", 'c', "N", struct validate, channels, 1, TP_MAX_CHANNELS,
               "number of channels to open at once, 1 to 16 (default: 4)"),
    OPT_CALL("nic", 0, "NIC", parse_nic,
             "use this NIC of this node (default: the NIC of the route to HOST, or with --gpus the NICs of the GPU)"),
    OPT_SIZE("size", 's', "SIZE", struct validate, size, 4096, 1ull << 30,
             "size of an operation; the first round has one per connection and direction (default: 16MiB)"),
    OPT_SIZE("window", 0, "SIZE", struct validate, window, 0, UINT64_MAX,
             "maximum bytes in flight on a connection (default: an eighth of --size, at least 64KiB)"),
    OPT_TIME("timeout", 0, "TIME", struct validate, timeout_ms, 100, 3600000,
             "time limit for each NIC and pair of GPUs (default: 30s)"),
    OPT_CALL("gpus", 'g', "LIST", parse_validate_gpus,
             "use GPU memory: all, 0-3, 0,2, or local:remote as in 0:5,1:4; test each pair over each of its NICs"),
    OPT_TEXT("map", 'm', "MAP", struct validate, map,
             "with --gpus: use these NICs for these GPUs: \"0,1=eth1;2-3=eth2,eth4\""),
    OPT_TEXT("json", 0, "FILE", struct validate, json,
             "write one JSON line per NIC and pair of GPUs to FILE; -: standard output"),
    OPT_TEXT("report", 0, "FILE", struct validate, report, "write one HTML file with the result of each connection"),
    OPT_GROUP(common_opts, struct validate, common),
    {0},
};

/* Parses the command line. Returns OPTS_GO, or the exit status. */
static int parse_validate_args(struct validate *v, int argc, char **argv)
{
    static const struct opts o = {
        .cmd = "validate",
        .args = "HOST[:PORT] [OPTION...]",
        .about = "Opens N connections at once on one NIC to a node that runs `hawser serve`, "
                 "transfers checked data in both directions, and reports whether each connection carried data both "
                 "ways. Exit status: 0 if each connection did, all data was right and nothing else failed, 1 if not, 2 "
                 "for a usage error.",
        .rows = rows,
        .least = 1,
        .most = 1,
        .too_few = "HOST is missing: `hawser serve` on the other node prints it"};
    int rc = opts_parse(&o, v, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    if (v->map && !v->gpus_text)
        return tool_usage("validate", "--map needs --gpus");
    if (opts_host(argv[optind], v->host, sizeof v->host, &v->port) < 0)
        return tool_usage("validate", "%s", hw_error());
    /* a small window, so that no channel takes all the work */
    char window[24];
    snprintf(window, sizeof window, "%" PRIu64, v->window ? v->window : HW_MAX(v->size / 8, 65536u));
    if (common_knob(&v->common, "window", window) < 0)
        return tool_usage("validate", "%s", hw_error());
    return OPTS_GO;
}

int cmd_validate(int argc, char **argv)
{
    struct validate *v = calloc(1, sizeof *v);
    if (!v)
        return tool_fail("validate", "out of memory");
    v->channels = 4;
    v->gpu = BUFFER_HOST;
    v->peer_gpu = TP_HOST;
    v->size = 16ull << 20;
    v->timeout_ms = 30000;
    v->port = HAWSER_DEFAULT_PORT;
    int rc = parse_validate_args(v, argc, argv);
    if (rc == OPTS_GO) {
        tool_catch_signals();
        rc = run_validate_command(v);
    }
    common_free(&v->common);
    free(v);
    return rc;
}
