/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/launch/launch_meet.h"

#include "net/nic.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEY_VARIABLE "HAWSER_MESH_KEY"
#define KEY_LEAST    16
#define LOOK_MS      60000
#define TRY_MS       3000  /* ms for one connection attempt to a possible address of rank 0 */
#define AGAIN_MS     200   /* ms between two rounds of attempts */
#define WRONG_MS     10000 /* ms; until then, a listener with a different key is assumed to be another job's rank 0 */

/* Removes the key from the environment, and thus from /proc/PID/environ and from child processes. */
static int forget_key(char *text)
{
    explicit_bzero(text, strlen(text));
    return unsetenv(KEY_VARIABLE) < 0 ? hw_fail(-errno, "removing the key from the environment: %s", strerror(errno))
                                      : 0;
}

int launch_key(struct common *c)
{
    char *text = getenv(KEY_VARIABLE);
    int rc = 0;
    if (c->key_file) {
        rc = common_read_key(c->key_file, c->key, sizeof c->key, &c->key_len);
    } else if (text) {
        size_t n = strlen(text);
        if (n < KEY_LEAST || n > sizeof c->key)
            return hw_fail(-EINVAL,
                           "the length of the key in " KEY_VARIABLE
                           " is %zu, but must be %d to %zu bytes; to make a key: head -c 32 /dev/urandom | base64",
                           n, KEY_LEAST, sizeof c->key);
        memcpy(c->key, text, n);
        c->key_len = n;
    }
    return rc == 0 && text ? forget_key(text) : rc;
}

int launch_copy_common(const struct common *c, uint64_t deadline_ms, struct common *own)
{
    char text[32];
    *own = (struct common){.key_len = c->key_len, .insecure = c->insecure, .verbose = c->verbose - 1};
    memcpy(own->key, c->key, c->key_len);
    snprintf(text, sizeof text, "%llu", (unsigned long long)HW_MAX(deadline_ms, (uint64_t)100));
    int rc = common_knob(own, "peer_timeout_ms", text);
    return rc < 0 ? rc : common_knob(own, "handshake_ms", text);
}

int launch_open(const struct common *c, uint64_t deadline_ms, struct common *own, hawser **out)
{
    /* Ignore transfer settings from the environment: this context sends only a few messages, some of them over
     * loopback. */
    static const char *const knob[][2] = {{"threads", "1"}, {"rails", ""}, {"nics", ""}, {"transport", "tcp"}};
    int rc = launch_copy_common(c, deadline_ms, own);
    own->flags = HAWSER_EVENTS;
    for (size_t i = 0; i < HW_ARRAY_LEN(knob) && rc == 0; i++)
        rc = common_knob(own, knob[i][0], knob[i][1]);
    return rc < 0 ? rc : common_open(own, out);
}

void launch_place_of(const struct launch_seat *seat, struct launch_place *place)
{
    *place = (struct launch_place){.port = seat->port, .ports = LAUNCH_PORTS};
    if (seat->meet[0])
        snprintf(place->host[place->n++], LAUNCH_HOST, "%s", seat->meet);
}

int launch_listen(hawser *h, const struct launch_place *place, uint16_t *port)
{
    int rc = -EADDRINUSE;
    for (uint16_t p = 0; p < place->ports && rc == -EADDRINUSE; p++)
        rc = hawser_listen(h, NULL, (uint16_t)(place->port + p), port);
    return rc;
}

/* Publishes the port and up to LAUNCH_PLACES addresses of this node through PMIx, as in "20100 198.18.0.1 10.0.0.1". */
int launch_publish(struct launch_pmix *pmix, uint16_t port)
{
    struct hw_nic nic[HW_NIC_MAX];
    char text[2048], addr[HAWSER_ADDR_TEXT + 8];
    int n = hw_nics_list(nic, HW_NIC_MAX, true), at = snprintf(text, sizeof text, "%u", port);
    if (n < 0)
        return n;
    for (int i = 0, k = 0; i < n && k < LAUNCH_PLACES; i++)
        if (!nic[i].loopback) {
            at += snprintf(text + at, sizeof text - (size_t)at, " %s", hw_addr_text(&nic[i].addr, addr, sizeof addr));
            k++;
        }
    return launch_pmix_put(pmix, text);
}

int launch_look_up(struct launch_seat *seat, struct launch_place *place, uint64_t wait_ms)
{
    struct launch_pmix *pmix;
    char text[2048] = "", *at = text, *word;
    uint32_t rank, size = 0;
    int rc = launch_pmix_open(&pmix, &rank, &size);
    if (rc < 0)
        return rc;
    rc = launch_pmix_get(pmix, text, sizeof text, (int)HW_MIN(wait_ms, (uint64_t)LOOK_MS));
    HW_KEEP_ERROR();
    launch_pmix_close(pmix);
    seat->size = seat->size ? seat->size : size;
    if (rc == 0)
        place->port = (uint16_t)strtoul(strsep(&at, " "), NULL, 10);
    place->ports = 1;
    while (rc == 0 && (word = strsep(&at, " ")) && place->n < LAUNCH_PLACES)
        snprintf(place->host[place->n++], LAUNCH_HOST, "%s", word);
    return rc == 0 && !place->n ? hw_fail(-EIO, "rank 0 published no address through PMIx") : rc;
}

/* Returns true if host is, or resolves to, an address of this node. Rank 0 is then reached over loopback. */
static bool is_here(const char *host)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct hw_nic nic[HW_NIC_MAX];
    struct addrinfo *to = NULL;
    bool here = false;
    HW_KEEP_ERROR();
    int n = hw_nics_list(nic, HW_NIC_MAX, true);
    if (n < 0 || getaddrinfo(host, NULL, &hints, &to) != 0)
        return false;
    for (const struct addrinfo *a = to; a && !here; a = a->ai_next) {
        union hw_addr addr = {0};
        memcpy(&addr, a->ai_addr, HW_MIN((size_t)a->ai_addrlen, sizeof addr));
        for (int i = 0; i < n && !here; i++)
            here = hw_addr_same_host(&nic[i].addr, &addr);
    }
    freeaddrinfo(to);
    return here;
}

static int try_places(hawser *talk, const struct launch_place *place, hawser_peer **lead)
{
    const struct hawser_connect_options o = {.size = sizeof o, .channels = 1, .flags = HAWSER_ONLY_DIALLED};
    int worst = -ENOENT;
    for (size_t i = 0; i < place->n; i++) {
        const char *host = is_here(place->host[i]) ? "127.0.0.1" : place->host[i];
        for (uint16_t p = 0; p < place->ports && !tool_stop; p++) {
            int rc = hawser_connect(talk, host, (uint16_t)(place->port + p), &o, TRY_MS, lead);
            if (rc == 0 || rc == -EPERM)
                return rc;
            worst = worst == -EACCES ? worst : rc;
            if (rc == -EHOSTUNREACH || rc == -ETIMEDOUT)
                break; /* the host's other ports would fail in the same way */
        }
    }
    return worst;
}

int launch_find(hawser *talk, const struct launch_place *place, uint64_t wait_ms, hawser_peer **lead)
{
    const uint64_t start = hw_now(), end = hw_deadline((int)wait_ms);
    for (;;) {
        int rc = try_places(talk, place, lead);
        if (rc == 0 || rc == -EPERM)
            return rc;
        if (tool_stop)
            return hw_fail(-EINTR, "interrupted");
        if (rc == -EACCES && hw_now() - start > WRONG_MS * HW_MS)
            return hw_fail(rc, "rank 0 at %s has a different job key, and may belong to another job", place->host[0]);
        if (hw_now() > end)
            return place->ports == 1
                       ? hw_wrap(rc, "rank 0 was not found at %s, port %u, within %llu s", place->host[0], place->port,
                                 (unsigned long long)(wait_ms / 1000))
                       : hw_wrap(rc, "rank 0 was not found at %s, ports %u to %u, within %llu s", place->host[0],
                                 place->port, place->port + place->ports - 1u, (unsigned long long)(wait_ms / 1000));
        usleep(AGAIN_MS * 1000);
    }
}
