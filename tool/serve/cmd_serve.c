/* SPDX-License-Identifier: Apache-2.0 */
/* hawser serve: serves clients such as bench and validate, and prints commands for the other node. */
#include "base/knob.h"
#include "base/size.h"
#include "tool/load/stats.h"
#include "tool/opts.h"
#include "tool/serve/service.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ADDRS     64
#define LOOPBACK_RANK 4

struct addr {
    char text[NI_MAXHOST];
    int rank; /* addresses with a lower rank are listed first */
    bool v6;
};

/* Returns true for addresses of labs and for loopback addresses, which need no key (RFC 2544's benchmark range; RFC
 * 1122, RFC 4291). */
static bool open_without_key(const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET) {
        uint32_t a = ntohl(((const struct sockaddr_in *)(const void *)sa)->sin_addr.s_addr);
        return a >> 24 == 127 || a >> 17 == (198u << 24 | 18u << 16) >> 17;
    }
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr);
}

static int by_rank(const void *a, const void *b)
{
    const struct addr *x = a, *y = b;
    return x->rank != y->rank ? x->rank - y->rank : strcmp(x->text, y->text);
}

/* Stores in out up to MAX_ADDRS addresses at which the other node may reach this node, the most useful first. If `any`
 * is false, stores only addresses that need no key. Stores loopback addresses only if there are no others. Returns the
 * number of addresses. */
static size_t list_serve_addresses(struct addr *out, bool any)
{
    struct ifaddrs *list = NULL;
    size_t n = 0;
    if (getifaddrs(&list) < 0)
        return 0;
    for (const struct ifaddrs *i = list; i && n < MAX_ADDRS; i = i->ifa_next) {
        const struct sockaddr *sa = i->ifa_addr;
        if (!sa || !(i->ifa_flags & IFF_UP) || (sa->sa_family != AF_INET && sa->sa_family != AF_INET6))
            continue;
        if (!any && !open_without_key(sa))
            continue;
        struct addr *a = &out[n];
        a->v6 = sa->sa_family == AF_INET6;
        if (a->v6 && IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr))
            continue; /* a link-local address is useless without the other node's scope ID */
        if (getnameinfo(sa, a->v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in), a->text, sizeof a->text,
                        NULL, 0, NI_NUMERICHOST) != 0)
            continue;
        a->rank = (i->ifa_flags & IFF_LOOPBACK ? LOOPBACK_RANK : 0) + (i->ifa_flags & IFF_RUNNING ? 0 : 2) + a->v6;
        n++;
    }
    freeifaddrs(list);
    qsort(out, n, sizeof *out, by_rank);
    while (n > 0 && out[n - 1].rank >= LOOPBACK_RANK && out[0].rank < LOOPBACK_RANK)
        n--;
    return n;
}

static void print_command(const char *addr, bool v6, uint16_t port, const struct common *c)
{
    bool bracket = v6 && port != HAWSER_DEFAULT_PORT;
    printf("  hawser bench %s%s%s", bracket ? "[" : "", addr, bracket ? "]" : "");
    if (port != HAWSER_DEFAULT_PORT)
        printf(":%u", port);
    if (c->key_file)
        printf(" --key-file %s", c->key_file);
    else if (c->insecure)
        printf(" --insecure");
    putchar('\n');
}

static void print_commands(const char *bind_addr, uint16_t port, const struct common *c)
{
    bool any = c->key_file || c->insecure;
    bool wild = !bind_addr || strcmp(bind_addr, "0.0.0.0") == 0 || strcmp(bind_addr, "::") == 0;
    if (!wild) {
        printf("On the other node run one of\n");
        print_command(bind_addr, strchr(bind_addr, ':') != NULL, port, c);
    } else {
        struct addr *a = calloc(MAX_ADDRS, sizeof *a);
        size_t n = a ? list_serve_addresses(a, any) : 0;
        printf(n && a[0].rank >= LOOPBACK_RANK ? "On this node run one of\n" : "On the other node run one of\n");
        for (size_t i = 0; i < n; i++)
            print_command(a[i].text, a[i].v6, port, c);
        free(a);
        if (n == 0)
            printf(any ? "  (this node has no address on an interface that is up)\n"
                       : "  (this node has no address that can be used without a key)\n");
    }
    if (!any)
        printf("Without a key, only loopback and 198.18.0.0/15 are accepted; for other addresses, both nodes "
               "need\n--key-file F or --insecure.\n");
    fflush(stdout);
}

static int listen_and_serve(struct common *c, const char *bind_addr, uint16_t port, const struct service_options *so,
                            hawser **h, struct service_summary *sum)
{
    char limit[32];
    struct hw_knobs knobs;
    struct service_options with = *so;
    int rc = hw_knobs_load(&knobs, (const char *const *)c->knobs);
    if (rc < 0 || (rc = common_open(c, h)) < 0)
        return rc;
    with.devmem = stats_has_devmem(knobs.transport);
    with.knobs = &knobs;
    rc = hawser_listen(*h, bind_addr, port, &port);
    if (rc == -EADDRINUSE)
        rc = tool_hint(rc, "another process listens on this port: choose a different one with --port");
    if (rc < 0)
        return rc;
    printf("hawser %s serves on %s port %u, with up to %s of memory%s\n", hawser_version(),
           bind_addr ? bind_addr : "all addresses,", port, hw_format_size(so->max_memory, limit, sizeof limit),
           so->once ? ", until all clients have disconnected" : "");
    print_commands(bind_addr, port, c);
    rc = service_run(*h, &with, sum);
    printf("%" PRIu64 " client%s (%" PRIu64 " lost), %.3f GB in, %.3f GB out, %.3f GB checked, %" PRIu64
           " bad byte%s, %" PRIu64 " request%s refused\n",
           sum->clients, hw_plural(sum->clients), sum->died, (double)sum->rx_bytes / 1e9, (double)sum->tx_bytes / 1e9,
           (double)sum->checked / 1e9, sum->bad, hw_plural(sum->bad), sum->refused, hw_plural(sum->refused));
    return rc;
}

static int serve_clients(struct common *c, const char *bind_addr, uint16_t port, const struct service_options *so)
{
    hawser *h = NULL;
    struct service_summary sum = {0};
    int rc = listen_and_serve(c, bind_addr, port, so, &h, &sum);
    if (rc < 0)
        tool_fail("serve", "%s", hawser_error());
    hawser_close(h);
    /* A signal is the normal end of the service and not a failure. Bad bytes are a failure. */
    return rc < 0 || sum.bad ? TOOL_FAILED : TOOL_OK;
}

struct serve_args {
    struct common common;
    struct service_options options;
    const char *bind;
    unsigned port;
};

static int parse_bind(void *args, const char *text)
{
    struct serve_args *a = args;
    struct in6_addr ignored;
    a->bind = text;
    if (inet_pton(AF_INET, text, &ignored) != 1 && inet_pton(AF_INET6, text, &ignored) != 1)
        return hw_fail(-EINVAL, "must be a numeric address, not '%s'", text);
    return 0;
}

static int parse_advertise(void *args, const char *text)
{
    return common_knob(&((struct serve_args *)args)->common, "advertise", text);
}

static const struct opt rows[] = {
    OPT_CALL("bind", 'b', "ADDR", parse_bind, "listen on this address (default: all)"),
    OPT_NUMBER("port", 'p', "PORT", struct serve_args, port, 0, 65535,
               "port for all connections; 0 for any free port (default: 20000)"),
    OPT_CALL("advertise", 'a', "ADDRS", parse_advertise,
             "tell clients these addresses instead of the NICs' own: [NIC=]ADDRESS[:PORT],.."),
    OPT_SIZE("max-memory", 0, "SIZE", struct serve_args, options.max_memory, 0, UINT64_MAX,
             "maximum memory for all clients together (default: 8GiB)"),
    OPT_FLAG("once", '1', struct serve_args, options.once, "end when all clients have disconnected"),
    OPT_GROUP(common_opts, struct serve_args, common),
    {0},
};

static int parse_and_serve(struct serve_args *a, int argc, char **argv)
{
    static const struct opts o = {
        .cmd = "serve",
        .args = "[OPTION...]",
        .about = "Serves any number of clients such as `hawser bench` and `hawser validate`, until interrupted.",
        .rows = rows,
        .too_many = "use --bind to give an address to listen on"};
    a->options.cmd = o.cmd;
    a->options.max_memory = 8ull << 30;
    a->options.limit_name = "--max-memory";
    a->port = HAWSER_DEFAULT_PORT;
    int rc = common_knob(&a->common, "metrics_kind", "serve"); /* set first, because --knob may override this value */
    if (rc < 0)
        return tool_fail("serve", "%s", hawser_error());
    rc = opts_parse(&o, a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    tool_catch_signals();
    return serve_clients(&a->common, a->bind, (uint16_t)a->port, &a->options);
}

int cmd_serve(int argc, char **argv)
{
    struct serve_args *a = calloc(1, sizeof *a);
    if (!a)
        return tool_fail("serve", "out of memory");
    int rc = parse_and_serve(a, argc, argv);
    common_free(&a->common);
    free(a);
    return rc;
}
