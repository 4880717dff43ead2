/* SPDX-License-Identifier: Apache-2.0 */
/* Connects two plugins. The sides first exchange greetings, with the GPUs of the connection, on the channel's socket,
 * and then establish the plugin's connections. */
#include "transport/netplugin/conn.h"

#include <string.h>
#include <sys/socket.h>

/* Chooses the GPU of the connection. A plugin that unpacks places received data in the memory of the GPU that was
 * current when the connection was made. If no GPU is specified for such a plugin, uses the GPU for which memory was
 * registered first, or else the nearest GPU. */
static void choose_gpu(struct np_conn *c)
{
    const struct hw_space *seen = atomic_load(&c->env->gpu);
    if (!c->slots.cuda || (!c->unpacks && c->gpu < 0))
        return;
    int gpu = np_gpu(c->host, c->dev, c->gpu >= 0 ? c->gpu : seen ? seen->device : -1);
    c->slots.only = gpu;
    c->slots.cuda = gpu >= 0;
    c->slots.told = gpu >= 0 && c->gpu >= 0;
    if (gpu < 0 && gpu != -ENODEV && np_warn_once(c->host))
        hw_log(c->slots.log, HAWSER_LOG_WARN, "GPU memory is staged through host memory: %s", hw_error());
}

/* Returns 0, or an error if the GPU's memory would be staged through host memory and knob require_direct forbids
 * staging. */
static int refuse_staging(const struct np_conn *c, bool direct)
{
    if (!c->env->knobs->require_direct || c->gpu < 0 || direct)
        return 0;
    return hw_fail(-EOPNOTSUPP, "knob require_direct: plugin %s cannot place data in memory of GPU %d",
                   np_info(c->host)->table, c->gpu);
}

/* Chooses the GPU, creates the listener, and prepares this side's greeting. */
static int begin_greeting(struct np_conn *c)
{
    struct hw_plugin_greet g = {
        .longest = c->slot, .gpu = c->gpu, .peer_gpu = c->peer_gpu, .wait_ms = np_info(c->host)->wait_ms};
    choose_gpu(c);
    int rc = refuse_staging(c, c->slots.told);
    if (rc || (rc = np_listen(c->host, c->dev, c->slots.only, g.handle, &c->listener)))
        return rc;
    hw_plugin_greet_encode(c->out, &g);
    return 0;
}

static int send_greeting(struct np_conn *c)
{
    while (c->out_done < sizeof(c->out)) {
        ssize_t n = send(c->fd, c->out + c->out_done, sizeof(c->out) - c->out_done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? -EAGAIN : hw_fail(-errno, "sending the plugin greeting: %s", strerror(errno));
        c->out_done += (unsigned)n;
    }
    return 0;
}

/* Reads the available part of the greeting, but no byte beyond its end. */
static int read_greeting(struct np_conn *c)
{
    int want = c->in_have >= HW_PLUGIN_HEAD ? hw_plugin_greet_size(c->in) : HW_PLUGIN_HEAD;
    while (want >= 0 && c->in_have < (unsigned)want) {
        ssize_t n = recv(c->fd, c->in + c->in_have, (unsigned)want - c->in_have, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? -EAGAIN : hw_fail(-errno, "receiving the plugin greeting: %s", strerror(errno));
        if (n == 0)
            return hw_fail(-ECONNRESET, "the peer closed the connection during the plugin greeting");
        c->in_have += (unsigned)n;
        if (c->in_have >= HW_PLUGIN_HEAD)
            want = hw_plugin_greet_size(c->in);
    }
    return HW_MIN(want, 0);
}

static int take_greeting(struct np_conn *c)
{
    int rc = read_greeting(c);
    if (rc || (rc = hw_plugin_greet_decode(c->in, c->in_have, &c->peer)))
        return rc;
    if (c->peer.longest != c->slot)
        return hw_fail(
            -EPROTO,
            "the peer's plugin uses messages of %u bytes, but this side uses %u: use the same version, settings and "
            "MTU on both sides",
            c->peer.longest, c->slot);
    c->greeted = true;
    if (c->server) {
        c->gpu = c->peer.peer_gpu;
        c->peer_gpu = c->peer.gpu;
    }
    /* The side whose plugin may take longer determines the deadline. */
    if (c->peer.wait_ms > np_info(c->host)->wait_ms)
        c->deadline += (c->peer.wait_ms - np_info(c->host)->wait_ms) * HW_MS;
    return 0;
}

int np_conn_greet(struct np_conn *c)
{
    int rc = c->server && !c->greeted ? take_greeting(c) : 0;
    if (rc || (!c->listener && (rc = begin_greeting(c))))
        return rc;
    rc = send_greeting(c);
    if (rc || (!c->greeted && (rc = take_greeting(c))))
        return rc;
    rc = np_connect(c->host, c->dev, c->slots.only, c->peer.handle, c->deadline, c->event, &c->tx);
    if (rc || (rc = np_accept(c->listener, c->deadline, c->event, &c->rx)))
        return rc;
    c->state = JOIN;
    return 0;
}

int np_conn_join(struct np_conn *c)
{
    int a = np_established(c->tx), b = np_established(c->rx);
    if (a && a != -EAGAIN)
        return a;
    if (b && b != -EAGAIN)
        return b;
    if (a || b) {
        if ((a && np_arm(c->tx) == 0) || (b && np_arm(c->rx) == 0))
            return np_conn_join(c);
        return -EAGAIN;
    }
    c->slots.tx = c->tx;
    c->slots.rx = c->rx;
    int rc = np_slots_open(&c->slots);
    if (rc || (rc = refuse_staging(c, c->slots.land)))
        return rc;
    c->state = READY;
    return 0;
}
