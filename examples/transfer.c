/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of a transfer in one process: context a writes into the memory of context b.
 *     cc transfer.c $(pkg-config --cflags --libs hawser) && ./a.out */
#include <errno.h>
#include <hawser.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE (16u << 20)

static void must(int rc, const char *what) /* if rc < 0, a call has failed, and hawser_error() has the message */
{
    if (rc < 0) {
        fprintf(stderr, "%s: %s\n", what, hawser_error());
        exit(1);
    }
}

int main(void)
{
    static unsigned char from[SIZE], into[SIZE];
    for (size_t i = 0; i < SIZE; i++)
        from[i] = (unsigned char)(i * 2654435761u >> 13);

    hawser *a, *b; /* usually in two programs on two machines; b listens, and a connects */
    hawser_peer *to_a, *to_b;
    uint16_t port;
    must(hawser_open(NULL, &a), "open");
    must(hawser_open(NULL, &b), "open");
    must(hawser_listen(b, "127.0.0.1", 0, &port), "listen");
    must(hawser_connect(a, "127.0.0.1", port, NULL, 5000, &to_b), "connect");
    must(hawser_accept(b, 5000, &to_a), "accept");

    /* b permits a to write. The 64-byte remote key may reach a in any way, here in a variable. */
    hawser_mem *mem_a, *mem_b;
    uint8_t key[HAWSER_KEY_SIZE];
    struct hawser_region region;
    must(hawser_mem_register(a, HAWSER_MEM_HOST, from, SIZE, &mem_a), "register");
    must(hawser_mem_register(b, HAWSER_MEM_HOST, into, SIZE, &mem_b), "register");
    must(hawser_export(mem_b, 0, SIZE, HAWSER_REMOTE_WRITE, to_a, key), "export");
    must(hawser_import(key, &region), "import");

    struct hawser_vec vec = {.mem = mem_a, .length = SIZE, .region = &region}; /* both offsets are 0 */
    struct hawser_op_options opts = {.size = sizeof(opts), /* b is notified with "done" at the end */
                                     .timeout_ms = 30000,
                                     .notify = "done",
                                     .notify_len = sizeof("done")};
    hawser_op *op;
    must(hawser_write(to_b, &vec, 1, &opts, &op), "write");
    must(hawser_wait(op, -1), "write");
    hawser_op_free(op);

    struct pollfd event = {hawser_eventfd(b), POLLIN, 0}; /* b sleeps until the notification has arrived */
    uint64_t count;
    size_t len;
    char text[HAWSER_NOTIFY_MAX];
    int rc;
    while ((rc = hawser_notification(to_a, text, sizeof(text), &len)) == -EAGAIN)
        if (poll(&event, 1, 5000) != 1 || read(event.fd, &count, sizeof(count)) != (ssize_t)sizeof(count))
            exit(1);
    must(rc, "notification");
    int same = memcmp(from, into, SIZE) == 0;
    printf("%s: %u bytes written to %s and %s\n", text, SIZE, hawser_peer_name(to_b), same ? "verified" : "WRONG");

    hawser_close(a); /* also closes its peers and frees its registrations */
    hawser_close(b);
    return same ? 0 : 1;
}
