/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the fake kernel that runs in the broker, for calls of the stub. */
#include "verbs/stub/inject.h"
#include "verbs/stub/notify.h"
#include "verbs_fake.h"

#include <stdlib.h>
#include <string.h>

int __real_vb_stub_run(struct vb_stub *s, int listener, int device);
int __wrap_vb_stub_run(struct vb_stub *s, int listener, int device);

int __wrap_vb_stub_run(struct vb_stub *s, int listener, int device)
{
    union {
        struct vb_header h;
        struct ib_uverbs_ioctl_hdr kernel;
        uint8_t bytes[sizeof(struct vb_header) + (VB_ATTRS_MAX + VB_WINDOW_INPUTS) * 16];
    } q;
    const uint32_t fixed = VB_WINDOW_SPLIT - VB_WINDOW_HEADER;
    static pid_t ran_by; /* identify the latest call */
    static uint64_t ran_seq;
    if (fake->number[FAKE_MODE] == REAL || !s->parked || s->dead)
        return __real_vb_stub_run(s, listener, device);
    int rc = vb_notify_give(listener, s->parked, device, VB_STUB_FD, true, false);
    if (rc < 0)
        return rc;
    uint64_t parked = s->parked;
    s->parked = 0;
    memcpy(&q.h, s->mine + VB_WINDOW_HEADER, sizeof q.h);
    if (q.h.length > sizeof q)
        abort();
    memcpy(&q, s->mine + VB_WINDOW_HEADER, q.h.length);
    /* The stub repeats a call if a signal interrupted it immediately after the answer. The real kernel would not have
     * run the interrupted call. */
    if (ran_by == s->tid && ran_seq == s->seq)
        fake_undo();
    ran_by = s->tid;
    ran_seq = s->seq;
    rc = fake_run(device, &q.kernel, s->tid, s->window, s->mine);
    if (q.h.length > fixed)
        memcpy(s->mine + VB_WINDOW_SPLIT, q.bytes + fixed, q.h.length - fixed);
    if (fake->number[FAKE_MODE] == HANGS) {
        fake->seen = 1;
        return 0;
    }
    /* A stop has interrupted the call, so the real kernel would not have run it. */
    if (vb_notify_answer(listener, parked, 0, rc) == -ENOENT) {
        fake_undo();
        ran_by = 0;
    }
    return 0;
}
