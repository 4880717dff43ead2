/* SPDX-License-Identifier: Apache-2.0 */
/* Tests hawserd's protocol: decoding restores encoded messages, and out-of-range fields are refused. */
#include "tests/tap.h"
#include "wire/helper.h"

static struct hw_helper_request good(uint16_t type)
{
    struct hw_helper_request q = {.type = type, .seq = 77};
    if (type == HW_H_BIND_RX || type == HW_H_BIND_TX)
        memcpy(q.nic, "enp0s31f6", 10);
    if (type == HW_H_BIND_RX)
        q.count = HW_HELPER_QUEUES;
    if (type == HW_H_STEER || type == HW_H_RELEASE)
        q.id = 0xfffffffe;
    return q;
}

static int request(const struct hw_helper_request *q)
{
    uint8_t buf[HW_HELPER_REQUEST];
    struct hw_helper_request back;
    hw_helper_request_encode(buf, q);
    return hw_helper_request_decode(buf, sizeof(buf), &back);
}

/* Changes one byte of a valid request, and decodes the request. */
static int touched(uint16_t type, size_t at, uint8_t to)
{
    uint8_t buf[HW_HELPER_REQUEST];
    struct hw_helper_request q = good(type);
    hw_helper_request_encode(buf, &q);
    buf[at] = to;
    return hw_helper_request_decode(buf, sizeof(buf), &q);
}

static void requests(void)
{
    for (uint16_t t = 1; t < (uint16_t)HW_H_COUNT; t++) {
        uint8_t buf[HW_HELPER_REQUEST + 1] = {0};
        struct hw_helper_request q = good(t), back;
        hw_helper_request_encode(buf, &q);
        ok(hw_helper_request_decode(buf, HW_HELPER_REQUEST, &back) == 0 && memcmp(&q, &back, sizeof(q)) == 0,
           "request %u reads back the same", t);
        bool all = true;
        for (size_t n = 0; n <= sizeof(buf); n++)
            all &= (hw_helper_request_decode(buf, n, &back) == 0) == (n == HW_HELPER_REQUEST);
        ok(all, "request %u is taken at its own length only", t);
    }
    ok(hw_helper_fds(HW_H_BIND_RX) == 1 && hw_helper_fds(HW_H_BIND_TX) == 1 && hw_helper_fds(HW_H_STEER) == 1 &&
           hw_helper_fds(HW_H_HELLO) == 0 && hw_helper_fds(HW_H_RELEASE) == 0,
       "binds and steers come with a descriptor");

    is_int(touched(HW_H_HELLO, 0, 'G'), -EPROTO, "another magic number");
    is_int(touched(HW_H_HELLO, 4, 2), -EPROTONOSUPPORT, "another version");
    is_int(touched(HW_H_HELLO, 6, 0), -EPROTO, "type 0");
    is_int(touched(HW_H_HELLO, 6, HW_H_COUNT), -EPROTO, "a type too high");
    is_int(touched(HW_H_HELLO, 7, 0x80), -EPROTO, "a reply's type");
    is_int(touched(HW_H_HELLO, 12, 1), -EPROTO, "a greeting with an id");
    is_int(touched(HW_H_RELEASE, 20, 'e'), -EPROTO, "a release with a NIC");
    is_int(touched(HW_H_RELEASE, 16, 1), -EPROTO, "a release with a count");
    is_int(touched(HW_H_BIND_RX, 37, 0x40), 0, "pieces of 16 KiB");
    is_int(touched(HW_H_BIND_RX, 37, 0x60), -EPROTO, "pieces of 24 KiB");
    is_int(touched(HW_H_BIND_RX, 37, 0x08), -EPROTO, "pieces of 2 KiB");
    is_int(touched(HW_H_BIND_RX, 39, 1), -EPROTO, "pieces of 16 MiB");
    is_int(touched(HW_H_BIND_TX, 37, 0x40), -EPROTO, "pieces of what is to be sent");
    is_int(touched(HW_H_RELEASE, 37, 0x40), -EPROTO, "something in the padding");
    is_int(touched(HW_H_BIND_RX, 33, 'x'), -EPROTO, "something behind a name's end");
    is_int(touched(HW_H_BIND_RX, 22, '/'), -EPROTO, "a NIC name with a slash");
    is_int(touched(HW_H_BIND_RX, 22, ' '), -EPROTO, "with a blank");
    is_int(touched(HW_H_BIND_RX, 22, ':'), -EPROTO, "with a colon");
    is_int(touched(HW_H_BIND_RX, 22, 0x1b), -EPROTO, "with an escape");
    is_int(touched(HW_H_BIND_RX, 22, 0xc3), -EPROTO, "with a byte of UTF-8");

    struct hw_helper_request q = good(HW_H_BIND_RX);
    q.count = 0;
    is_int(request(&q), -EPROTO, "no queues");
    q.count = HW_HELPER_QUEUES + 1;
    is_int(request(&q), -EPROTO, "too many queues");
    q = good(HW_H_BIND_TX);
    q.count = 1;
    is_int(request(&q), -EPROTO, "queues to send from");
    memset(q.nic, 'e', sizeof(q.nic));
    q.count = 0;
    is_int(request(&q), -EPROTO, "a NIC name that does not end");
    memset(q.nic, 0, sizeof(q.nic));
    is_int(request(&q), -EPROTO, "an empty NIC name");
    memcpy(q.nic, "..", 3);
    is_int(request(&q), -EPROTO, "two dots for a NIC");
    q = good(HW_H_STEER);
    q.id = 0;
    is_int(request(&q), -EPROTO, "steering to binding 0");
}

static int reply(const struct hw_helper_reply *r)
{
    uint8_t buf[HW_HELPER_REPLY];
    struct hw_helper_reply back;
    hw_helper_reply_encode(buf, r);
    int rc = hw_helper_reply_decode(buf, sizeof(buf), &back);
    if (rc == 0 && memcmp(r, &back, sizeof(back)) != 0)
        return 1;
    return rc;
}

static void replies(void)
{
    struct hw_helper_reply rx = {.type = HW_H_BIND_RX, .seq = 9, .id = 4, .dmabuf_id = 5, .count = 2, .queues = {7, 6}};
    struct hw_helper_reply tx = {.type = HW_H_BIND_TX, .seq = 9, .id = 4, .dmabuf_id = 5};
    struct hw_helper_reply steer = {.type = HW_H_STEER, .id = 4, .count = 1, .queues = {3}};
    struct hw_helper_reply no = {.type = HW_H_STEER, .status = -ENOSPC, .text = "the table is full"}, r;
    is_int(reply(&rx), 0, "a bind's answer reads back the same");
    is_int(reply(&tx), 0, "that of one for sending");
    is_int(reply(&steer), 0, "a steer's");
    is_int(reply(&no), 0, "a refusal");
    r = (struct hw_helper_reply){.type = HW_H_HELLO};
    is_int(reply(&r), 0, "the greeting's");
    memset(no.text, 'x', sizeof(no.text) - 1);
    is_int(reply(&no), 0, "a text that fills its field");

    rx.page = 16384;
    is_int(reply(&rx), 0, "pieces as asked for");
    rx.page = 16385;
    is_int(reply(&rx), -EPROTO, "pieces of a size that is none");
    rx.page = 0;
    tx.page = steer.page = 4096;
    is_int(reply(&tx), -EPROTO, "a binding for sending with pieces");
    is_int(reply(&steer), -EPROTO, "a rule with pieces");
    tx.page = steer.page = 0;
    r = rx;
    r.id = 0;
    is_int(reply(&r), -EPROTO, "a binding without a number");
    r = rx;
    r.count = 0;
    r.queues[0] = r.queues[1] = 0;
    is_int(reply(&r), -EPROTO, "a binding without queues");
    r = rx;
    r.count = HW_HELPER_QUEUES + 1;
    is_int(reply(&r), -EPROTO, "more queues than there is room for");
    r = rx;
    r.queues[5] = 1;
    is_int(reply(&r), -EPROTO, "a queue behind the last one");
    r = tx;
    r.count = 1;
    is_int(reply(&r), -EPROTO, "queues of a binding for sending");
    r = steer;
    r.dmabuf_id = 1;
    is_int(reply(&r), -EPROTO, "a rule with a dma-buf");
    r = no;
    r.id = 1;
    is_int(reply(&r), -EPROTO, "a refusal with a number");
    r = no;
    r.text[0] = 0;
    memset(r.text, 0, sizeof(r.text));
    is_int(reply(&r), -EPROTO, "a refusal without a word");
    r = tx;
    r.text[0] = 'x';
    is_int(reply(&r), -EPROTO, "a word with a success");
    r = no;
    r.text[3] = '\n';
    is_int(reply(&r), -EPROTO, "two lines");

    uint8_t buf[HW_HELPER_REPLY];
    hw_helper_reply_encode(buf, &no);
    memset(buf + 104, 'x', HW_ERR_TEXT);
    is_int(hw_helper_reply_decode(buf, sizeof(buf), &r), -EPROTO, "a text that does not end");
    hw_helper_reply_encode(buf, &no);
    hw_put32(buf + 12, 4096);
    is_int(hw_helper_reply_decode(buf, sizeof(buf), &r), -EPROTO, "no errno");
    hw_helper_reply_encode(buf, &rx);
    buf[7] = 0;
    is_int(hw_helper_reply_decode(buf, sizeof(buf), &r), -EPROTO, "a request for an answer");
    is_int(hw_helper_reply_decode(buf, HW_HELPER_REPLY - 1, &r), -EPROTO, "an answer cut short");
    hw_helper_reply_encode(buf, &rx);
    buf[99] = 1;
    is_int(hw_helper_reply_decode(buf, sizeof(buf), &r), -EPROTO, "something in the spare bytes");
}

int main(void)
{
    requests();
    replies();
    return tap_done();
}
