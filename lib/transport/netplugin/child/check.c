/* SPDX-License-Identifier: Apache-2.0 */
/* Checks data from the child before the parent uses it. fuzz_netplugin tests these checks. */
#include "transport/netplugin/child/ring.h"

#include <string.h>

const char *const np_call_names[NP_CALLS] = {
    [NP_NOTHING] = "nothing",
    [NP_DLOPEN] = "dlopen",
    [NP_INIT] = "init",
    [NP_GETDEVICES] = "devices",
    [NP_PROPERTIES] = "getProperties",
    [NP_LISTEN] = "listen",
    [NP_CONNECT] = "connect",
    [NP_ACCEPT] = "accept",
    [NP_REGMR] = "regMr",
    [NP_DEREGMR] = "deregMr",
    [NP_ISEND] = "isend",
    [NP_IRECV] = "irecv",
    [NP_TEST] = "test",
    [NP_FLUSH] = "iflush",
    [NP_UNPACK] = "unpacking",
    [NP_CONSUMED] = "irecvConsumed",
    [NP_CLOSE] = "close",
    [NP_FINALIZE] = "finalize",
    [NP_DLCLOSE] = "dlclose",
};

#define END(text) ((text)[sizeof(text) - 1] = 0)

static void replace_control_chars(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

/* Replaces impossible values with values that mean "not reported". */
static void check_device(struct np_device *d)
{
    END(d->name);
    END(d->pci);
    replace_control_chars(d->name);
    replace_control_chars(d->pci);
    d->speed = HW_MAX(d->speed, 0);
    d->port = HW_MAX(d->port, 0);
    d->max_comms = HW_MAX(d->max_comms, 0);
    if (!(d->latency >= 0 && d->latency < 1e9f)) /* also true for NaN */
        d->latency = 0;
    if (d->max_bytes > NCCL_MAX_NET_SIZE_BYTES)
        d->max_bytes = 0;
}

int np_check_reply(const void *bytes, size_t n, uint32_t seq, enum np_op op, struct np_reply *out)
{
    if (n != sizeof(*out))
        return hw_fail(-EPROTO, "a reply of %zu bytes where %zu were expected", n, sizeof(*out));
    memcpy(out, bytes, n);
    END(out->text);
    if (out->seq != seq)
        return hw_fail(-EPROTO, "a reply to message %u where %u was expected", out->seq, seq);
    if (out->rc > 0 || out->rc < -4095)
        return hw_fail(-EPROTO, "invalid result %d in a reply", out->rc);
    if (out->rc < 0)
        return 0;
    if (op == NP_OP_LOAD || op == NP_OP_INIT)
        END(out->u.hello.table);
    if (op == NP_OP_LOAD && (out->u.hello.version < 6 || out->u.hello.version > 12))
        return hw_fail(-EPROTO, "invalid table version %u", out->u.hello.version);
    if (op == NP_OP_INIT && (out->u.hello.devices == 0 || out->u.hello.devices > NP_DEVICES))
        return hw_fail(-EPROTO, "invalid number of devices: %u", out->u.hello.devices);
    if (op == NP_OP_GPU && (out->u.gpu.device < 0 || out->u.gpu.device > 4095))
        return hw_fail(-EPROTO, "invalid GPU number %d in a reply", out->u.gpu.device);
    if (op == NP_OP_PROPERTIES)
        check_device(&out->u.device);
    return 0;
}

int np_check_counter(const char *what, uint64_t value, uint64_t least, uint64_t most)
{
    if (value < least || value > most)
        return hw_fail(-EPROTO, "its counter of %s requests is %llu, but must be between %llu and %llu", what,
                       (unsigned long long)value, (unsigned long long)least, (unsigned long long)most);
    return 0;
}

int np_check_frags(const struct loadMeta *list, uint32_t n, uint64_t len, struct loadMeta *out, uint64_t *size)
{
    *size = 0;
    if (n > NP_FRAGS)
        return hw_fail(-EPROTO, "a list of %u fragments is too long: at most %d are possible", n, NP_FRAGS);
    memcpy(out, list, n * sizeof(*out)); /* copied once, because the child may change the list at any time */
    for (uint32_t i = 0; i < n; i++) {
        if (out[i].dst_off > len || out[i].len > len - out[i].dst_off)
            return hw_fail(-EMSGSIZE, "fragment %u, %u bytes at offset %llu, exceeds the %llu bytes of the receive", i,
                           out[i].len, (unsigned long long)out[i].dst_off, (unsigned long long)len);
        *size += out[i].len;
    }
    if (*size > len)
        return hw_fail(-EPROTO, "the fragments have %llu bytes in total, but the receive has only %llu",
                       (unsigned long long)*size, (unsigned long long)len);
    return 0;
}

char *np_log_line(const char *text, size_t n, char *buf, size_t cap)
{
    size_t at = 0, from, lines = 0;
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == 0))
        n--;
    /* Selects as many whole lines from the end as fit. If the last line alone is too long, selects its beginning. */
    for (from = n; from > 0; lines++) {
        const char *nl = memrchr(text, '\n', from - 1);
        const size_t begin = nl ? (size_t)(nl - text) + 1 : 0;
        if (lines > 0 && n - begin + 2 * lines >= cap)
            break;
        from = begin;
    }
    for (size_t i = from; i < n && at + 4 <= cap; i++) {
        if (text[i] == '\n') {
            memcpy(buf + at, " | ", 3);
            at += 3;
        } else {
            buf[at++] = text[i];
            if (!text[i]) /* replaced, because a NUL would end the string */
                buf[at - 1] = '?';
        }
    }
    buf[at] = 0;
    replace_control_chars(buf);
    return buf;
}
