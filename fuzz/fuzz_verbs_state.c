/* SPDX-License-Identifier: Apache-2.0 */
/* The message of a container runtime to the agent. The low bits of the first byte are the number of file descriptors
 * received, and the rest is the text. An accepted container has a valid file name, PID and file descriptor, and no
 * shorter prefix of the text is complete. */
#include "fuzz.h"
#include "verbs/agent/agent.h"

static void check(const struct vb_container *c, unsigned which, unsigned fds)
{
    FUZZ_CHECK(*c->id && *c->id != '.' && !strchr(c->id, '/') && strlen(c->id) < sizeof(c->id));
    FUZZ_CHECK(c->pid >= 0 && c->listener == -1 && which < fds);
    FUZZ_CHECK(strlen(c->section) < sizeof(c->section));
    for (unsigned i = 0; i < c->n_annotations; i++)
        FUZZ_CHECK(c->annotations[i].value && strncmp(c->annotations[i].key, "hawser.verbs.", 13) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vb_container c;
    struct vb_state_scan scan = {0};
    unsigned which = 99, fds = size ? *data & 7 : 0;
    bool whole = false, part = false;
    if (size == 0)
        return 0;
    const char *text = (const char *)data + 1;
    size_t len = size - 1, end = 0;
    hw_fail(0, "%s", "");
    int rc = vb_state_parse(text, len, fds, &c, &which, &whole);
    FUZZ_CHECK(rc == 0 || (rc == -EINVAL && *hw_error()) || (rc == -E2BIG && len >= VB_STATE_MAX));
    FUZZ_CHECK(rc == 0 || (c.n_annotations == 0 && c.listener == -1));
    /* a byte-by-byte scan must find the text complete if and only if vb_state_parse() does */
    while (end < len && !(part = vb_state_whole(&scan, text + end, 1)))
        end++;
    FUZZ_CHECK(part == whole || len >= VB_STATE_MAX);
    if (rc == 0 && whole) {
        struct vb_container less;
        bool sooner = true;
        check(&c, which, fds);
        FUZZ_CHECK(vb_state_parse(text, end, fds, &less, &which, &sooner) == 0 && !sooner);
        vb_container_free(&c);
    }
    return 0;
}
