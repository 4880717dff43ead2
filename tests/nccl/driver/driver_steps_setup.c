/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that test connections between various devices, and connections that fail. */
#include "driver.h"

#include <signal.h>
#include <stdlib.h>

#define DEVICES 8

static const struct flow_spec talk = {
    .what = "a talk between devices", .n = 20, .depth = 4, .min = 0, .max = 50000, .slack = 10};

/* Connects each of the first devices to the same and to the next device, because the peer's NICs may be numbered
 * differently. */
int step_each_device(struct rank *r)
{
    int n = 0, rc = net_fail(net_devices(r, &n), "devices");

    n = HW_MIN(n, DEVICES);
    for (int i = 0; i < n && !rc; i++)
        for (int next = 0; next < (n > 1 ? 2 : 1) && !rc; next++) {
            struct comm *c = comm_new(r, i % 2);
            c->dev = c->sends ? i : (i + next) % n;
            rc = c->sends ? 0 : comm_listen(c);
            if (!rc)
                rc = comm_handle(c);
            if (!rc)
                rc = comm_link(c);
            if (!rc)
                rc = flow_all(c, &talk);
            if (!rc)
                rc = comm_close(c);
            rc = hw_wrap(rc, "devices %d and %d", i, (i + next) % n);
        }
    return rc;
}

/* Checks that connect or the first messages fail in time if the peer does not accept. */
static int in_vain(struct comm *c)
{
    struct flow_spec s = {.what = "messages to nobody", .n = 100000, .depth = 4, .min = 100000, .max = 100000};
    struct wait w = wait_for("an error of connect, for there is nobody to accept");
    struct flow f;
    int rc = 0;

    while (!c->c && (rc = comm_try(c)) == -EAGAIN)
        if ((rc = wait_turn(c->r, &w)))
            return rc;
    if (rc)
        return rc == -EREMOTEIO ? 0 : rc;
    if ((rc = flow_open(&f, c, &s)) || (rc = flow_until_error(&f)))
        return rc;
    return flow_abandon(&f);
}

/* Closes a listener before or during a connection, and checks that the next connections work. */
int step_listen_closed(struct rank *r)
{
    for (int late = 0; late < 2; late++) {
        struct comm *c = comm_new(r, 0);
        int rc = c->sends ? 0 : comm_listen(c);
        if (!rc)
            rc = comm_handle(c);
        if (!rc && c->sends && late && (rc = comm_try(c)) == -EAGAIN)
            rc = 0;
        if (!rc && late)
            rc = barrier(r);
        if (!rc)
            rc = comm_close_listen(c);
        if (!rc && !late)
            rc = barrier(r);
        if (opt.no_abort)
            return rc ? rc : SKIP("--no-abort");
        if (!rc && c->sends)
            rc = in_vain(c);
        if (!rc)
            rc = barrier(r);
        if (rc)
            return rc;
    }
    return exchange(r, &talk);
}

int step_dead_listener(struct rank *r)
{
    struct comm *c = comm_new(r, 0);
    int rc = c->sends ? 0 : comm_listen(c);

    if (!rc)
        rc = comm_handle(c);
    if (rc)
        return rc;
    if (opt.no_death)
        return SKIP("--no-death");
    if (r->id == 1)
        return raise(SIGKILL);
    nap_ms(100); /* time for rank 1 to die */
    return in_vain(c);
}
