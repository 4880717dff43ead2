/* SPDX-License-Identifier: Apache-2.0 */
/* One process pushes the blocks of a KV cache into the memory of another with a single write, which also notifies the
 * receiver when all blocks have arrived. To build: cc -o kv_push kv_push.c $(pkg-config --cflags --libs hawser)
 *     ./kv_push              on one machine: receives, and prints its port
 *     ./kv_push HOST PORT    on the other machine: sends
 * Between machines, both processes need the same job key: set .key and .key_len of struct hawser_options. */
#include <hawser.h>
#include <stdio.h>
#include <stdlib.h>

/* number of blocks; bytes per block; timeout in ms for waiting for the other side */
enum { BLOCKS = 64, BLOCK = 128 << 10, WAIT = 10000 };

static unsigned char cache[BLOCKS * BLOCK];

static void must(int rc, const char *what) /* if rc < 0, a call has failed, and hawser_error() has the message */
{
    if (rc < 0) {
        fprintf(stderr, "%s: %s\n", what, hawser_error());
        exit(1);
    }
}

/* Returns the next event of the given kind, and discards other events. */
static struct hawser_completion await_event(hawser *h, uint32_t kind)
{
    struct hawser_completion c = {0};
    while (c.event != kind)
        must(hawser_poll_wait(h, &c, 1, WAIT) - 1, "the other process sent nothing");
    return c;
}

int main(int argc, char **argv)
{
    struct hawser_options opts = {.size = sizeof(opts), .flags = HAWSER_EVENTS};
    hawser *h;
    hawser_mem *mem;
    must(hawser_open(&opts, &h), "open");
    must(hawser_mem_register(h, HAWSER_MEM_HOST, cache, sizeof(cache), &mem), "register");
    if (argc < 3) { /* receiver: permits the sender to write, and sends it the remote key */
        uint8_t key[HAWSER_KEY_SIZE];
        uint16_t port;
        must(hawser_listen(h, NULL, 0, &port), "listen");
        fprintf(stderr, "port %u\n", (unsigned)port);
        hawser_peer *sender = await_event(h, HAWSER_ARRIVED).peer;
        must(hawser_export(mem, 0, sizeof(cache), HAWSER_REMOTE_WRITE, sender, key), "export");
        must(hawser_notify(sender, key, sizeof(key), NULL, NULL), "notify");
        struct hawser_completion done = await_event(h, HAWSER_NOTIFIED); /* all blocks have arrived */
        for (size_t i = 0; i < sizeof(cache); i++)
            must(cache[i] == (BLOCKS - 1 - i / BLOCK + i % BLOCK) % 251 ? 0 : -1, "a wrong byte");
        printf("%s: %d blocks of %d bytes, all of them right\n", (char *)done.data, BLOCKS, BLOCK);
        hawser_data_free(done.data);
        await_event(h, HAWSER_DIED); /* the sender has received its confirmation and has closed */
    } else {
        struct hawser_vec vec[BLOCKS]; /* destination of each block, here in reverse order */
        struct hawser_region region;
        hawser_peer *receiver;
        for (size_t i = 0; i < sizeof(cache); i++)
            cache[i] = (unsigned char)((i / BLOCK + i % BLOCK) % 251);
        must(hawser_connect(h, argv[1], (uint16_t)strtol(argv[2], NULL, 10), NULL, WAIT, &receiver), "connect");
        struct hawser_completion key = await_event(h, HAWSER_NOTIFIED);
        must(key.length == HAWSER_KEY_SIZE ? hawser_import(key.data, &region) : -1, "import");
        hawser_data_free(key.data);
        for (size_t i = 0; i < BLOCKS; i++)
            vec[i] = (struct hawser_vec){mem, i * BLOCK, BLOCK, &region, (BLOCKS - 1 - i) * BLOCK, NULL};
        struct hawser_op_options o = {.size = sizeof(o), .timeout_ms = WAIT, .notify = "request 7", .notify_len = 10};
        must(hawser_write(receiver, vec, BLOCKS, &o, NULL), "write"); /* no handle, so the completion is an event */
        must(await_event(h, HAWSER_ENDED).result, "write");
    }
    hawser_close(h); /* also closes its peers and frees its registrations */
}
