/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that a plugin's process may write and that the parent reads (a reply, a list of fragments, a log line),
 * and the greeting of a peer. The first byte selects the type of input. Accepted values are within bounds. A refusal
 * sets an error text. */
#include "fuzz.h"
#include "transport/netplugin/child/ring.h"
#include "wire/wire.h"

static void ends(const char *text, size_t cap)
{
    FUZZ_CHECK(memchr(text, 0, cap));
}

static void printable(const char *text)
{
    for (; *text; text++)
        FUZZ_CHECK((unsigned char)*text >= ' ' && *text != 0x7f);
}

static void reply(const uint8_t *data, size_t size, unsigned op)
{
    static struct np_reply r;
    uint8_t raw[sizeof(r)] = {0}; /* short inputs are padded to a whole reply */
    memcpy(raw, data, HW_MIN(size, sizeof(raw)));
    int rc = np_check_reply(raw, size > 0 && size <= sizeof(raw) ? sizeof(raw) : size, 1, (enum np_op)op, &r);
    FUZZ_CHECK(rc == 0 || (rc == -EPROTO && *hw_error()));
    if (rc < 0)
        return;
    FUZZ_CHECK(r.rc <= 0 && r.rc >= -4095);
    ends(r.text, sizeof(r.text));
    if (r.rc < 0)
        return;
    if (op == NP_OP_LOAD) {
        FUZZ_CHECK(r.u.hello.version >= 6 && r.u.hello.version <= 12);
        ends(r.u.hello.table, sizeof(r.u.hello.table));
    } else if (op == NP_OP_INIT) {
        FUZZ_CHECK(r.u.hello.devices > 0 && r.u.hello.devices <= NP_DEVICES);
    } else if (op == NP_OP_GPU) {
        FUZZ_CHECK(r.u.gpu.device >= 0 && r.u.gpu.device < 4096);
    } else if (op == NP_OP_PROPERTIES) {
        const struct np_device *d = &r.u.device;
        ends(d->name, sizeof(d->name));
        ends(d->pci, sizeof(d->pci));
        printable(d->name);
        printable(d->pci);
        FUZZ_CHECK(d->speed >= 0 && d->latency >= 0 && d->max_bytes <= NCCL_MAX_NET_SIZE_BYTES);
    }
}

static void fragments(const uint8_t *data, size_t size, uint64_t len)
{
    const size_t n = size / sizeof(struct loadMeta);
    struct loadMeta *list = malloc(n * sizeof(*list) + 1), *out = malloc(n * sizeof(*list) + 1);
    uint64_t sum = 0, total = 0;
    if (!list || !out)
        abort();
    memcpy(list, data, n * sizeof(*list));
    int rc = np_check_frags(list, (uint32_t)n, len, out, &total);
    FUZZ_CHECK(rc == 0 || ((rc == -EPROTO || rc == -EMSGSIZE) && *hw_error()));
    for (size_t i = 0; rc == 0 && i < n; i++) {
        FUZZ_CHECK(out[i].dst_off <= len && out[i].len <= len - out[i].dst_off);
        sum += out[i].len;
    }
    FUZZ_CHECK(rc < 0 || (sum == total && sum <= len && n <= NP_FRAGS));
    free(list);
    free(out);
}

static void log_line(const uint8_t *data, size_t size, size_t cap)
{
    char *buf = malloc(cap);
    if (!buf)
        abort();
    FUZZ_CHECK(np_log_line((const char *)data, size, buf, cap) == buf);
    ends(buf, cap);
    printable(buf);
    free(buf);
}

static void greeting(const uint8_t *data, size_t size)
{
    struct hw_plugin_greet g, h;
    uint8_t again[HW_PLUGIN_GREET];
    int rc = hw_plugin_greet_decode(data, size, &g);
    FUZZ_CHECK(rc == 0 || (rc == -EPROTO && *hw_error()));
    if (rc < 0)
        return;
    FUZZ_CHECK(g.gpu >= -1 && g.gpu < HW_GPU_MOST && g.peer_gpu >= -1 && g.peer_gpu < HW_GPU_MOST);
    hw_plugin_greet_encode(again, &g);
    FUZZ_CHECK(hw_plugin_greet_decode(again, sizeof(again), &h) == 0 && h.longest == g.longest && h.gpu == g.gpu &&
               h.peer_gpu == g.peer_gpu && h.wait_ms == g.wait_ms && memcmp(h.handle, g.handle, sizeof(g.handle)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    const unsigned what = data[0], more = data[1];
    data += 2;
    size -= 2;
    hw_fail(0, "%s", "");
    if (what == 255)
        greeting(data, size);
    else if (what % 4 == 0)
        fragments(data, size, (uint64_t)more << (what / 4 % 32));
    else if (what % 4 == 1)
        log_line(data, size, 1 + more);
    else
        reply(data, size, more % (NP_OP_QUIT + 1));
    return 0;
}
