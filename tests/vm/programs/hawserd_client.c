/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of hawserd for the tests in the VM. Its arguments are steps, which it executes in order:
 *   rx:NIC:BYTES:QUEUES   binds a udmabuf to receive       -> "rx ID DMABUF QUEUE,QUEUE" or "rx ERRNO TEXT"
 *   piece:BYTES           the next rx binds dma heap memory in pieces of BYTES bytes -> "rx .. piece=BYTES"
 *   memfd:NIC:BYTES       tries to bind a memfd            -> "rx ..."
 *   tx:NIC:BYTES          binds a udmabuf to send          -> "tx ID DMABUF"
 *   connect:ADDR:PORT     opens a TCP connection, which the next steps use
 *   steer                 steers the connection to the last binding -> "steer RULE QUEUE"
 *   ask                   writes a line to the connection, after which the other end may send
 *   close                 resets the connection
 *   dissolve              ends the connection, but keeps the socket
 *   race:ADDR:PORT:N      steers N connections, each of which ends during this -> "race STEERED REFUSED"
 *   release               releases the last rule or, if there is none, the last binding -> "release 0"
 *   serve:ADDR:PORT:BYTES runs forever without hawserd: sends BYTES bytes to each client that writes a line
 *   wait                  prints "ready" and waits until it is killed, or until hawserd exits, then prints "gone"
 * If a step fails, the client exits with 1, unless the step prints a result as shown above.
 */
#include "transport/devmem/helper.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct dm_helper *helper;
static struct dm_binding binding;
static uint32_t rule;
static int conn = -1;
static uint32_t piece;

static int heap(size_t bytes)
{
    struct dma_heap_allocation_data a = {.len = bytes, .fd_flags = O_RDWR | O_CLOEXEC};
    int dev = open("/dev/dma_heap/system", O_RDWR | O_CLOEXEC),
        rc = dev < 0 ? -1 : ioctl(dev, DMA_HEAP_IOCTL_ALLOC, &a);
    if (rc < 0)
        perror("/dev/dma_heap/system");
    close(dev);
    return rc < 0 ? -1 : (int)a.fd;
}

static int memory(size_t bytes, bool dmabuf)
{
    if (piece)
        return heap(bytes);
    int mem = memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (mem < 0 || ftruncate(mem, (off_t)bytes) < 0 || fcntl(mem, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
        return -1;
    if (!dmabuf)
        return mem;
    int dev = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
    struct udmabuf_create c = {.memfd = (uint32_t)mem, .flags = UDMABUF_FLAGS_CLOEXEC, .size = bytes};
    int fd = dev < 0 ? -1 : ioctl(dev, UDMABUF_CREATE, &c);
    if (fd < 0)
        perror("udmabuf");
    close(dev);
    close(mem);
    return fd;
}

static void answer(const char *what, int rc)
{
    printf("%s %s %s\n", what, hw_errno_name(rc), hw_error());
}

static int bind_step(char *nic, size_t bytes, unsigned queues, bool dmabuf)
{
    int fd = memory(bytes, dmabuf);
    if (fd < 0)
        return 1;
    const char *what = queues ? "rx" : "tx";
    int rc = queues ? dm_helper_bind_rx(helper, nic, fd, queues, piece, &binding)
                    : dm_helper_bind_tx(helper, nic, fd, &binding);
    close(fd);
    if (rc) {
        answer(what, rc);
        return 0;
    }
    printf("%s %u %u ", what, binding.id, binding.dmabuf_id);
    for (unsigned i = 0; i < binding.nqueues; i++)
        printf("%s%u", i ? "," : "", binding.queues[i]);
    if (piece)
        printf(" piece=%u", binding.page);
    putchar('\n');
    return 0;
}

static int connect_step(const char *host, uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    close(conn);
    conn = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (inet_pton(AF_INET, host, &a.sin_addr) == 1 && connect(conn, (struct sockaddr *)&a, sizeof(a)) == 0)
        return 0;
    perror("connect");
    return 1;
}

static int serve_step(const char *host, uint16_t port, size_t bytes)
{
    static char zeros[65536], line[16];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    (void)setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (inet_pton(AF_INET, host, &a.sin_addr) != 1 || bind(l, (struct sockaddr *)&a, sizeof(a)) < 0 ||
        listen(l, 16) < 0) {
        perror("serve");
        return 1;
    }
    printf("ready\n");
    for (;;) {
        int fd = accept4(l, NULL, NULL, SOCK_CLOEXEC);
        pid_t pid = fd < 0 ? -1 : fork();
        if (pid == 0) {
            ssize_t n = read(fd, line, sizeof(line)) > 0 ? 1 : 0;
            for (size_t left = bytes; left && n > 0; left -= (size_t)n)
                n = write(fd, zeros, HW_MIN(left, sizeof(zeros)));
            (void)poll(NULL, 0, 20000); /* closing the connection would interfere */
            _exit(0);
        }
        close(fd);
    }
}

static int steer_step(void)
{
    uint32_t queue;
    int rc = dm_helper_steer(helper, binding.id, conn, &rule, &queue);
    if (rc)
        answer("steer", rc);
    else
        printf("steer %u %u\n", rule, queue);
    return 0;
}

static int dissolve_step(void)
{
    struct sockaddr a = {.sa_family = AF_UNSPEC};
    return connect(conn, &a, sizeof(a));
}

/* Steers a connection while another process that shares the socket ends the connection at a random time. */
static int race_step(const char *host, uint16_t port, unsigned n)
{
    unsigned steered = 0, refused = 0, seed = 1;
    for (unsigned i = 0; i < n; i++) {
        uint32_t id, queue;
        conn = -1;
        if (connect_step(host, port))
            return 1;
        seed = seed * 1103515245u + 12345u;
        const unsigned us = 1u << (seed >> 16) % 19; /* hawserd may be slow in a guest */
        const pid_t pid = fork();
        if (pid == 0) {
            usleep(us);
            _exit(dissolve_step() ? 1 : 0);
        }
        if (dm_helper_steer(helper, binding.id, conn, &id, &queue) == 0)
            steered++;
        else
            refused++;
        int status;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
            return 1;
    }
    printf("race %u %u\n", steered, refused);
    return 0;
}

static int close_step(void)
{
    struct linger hard = {.l_onoff = 1};
    (void)setsockopt(conn, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    close(conn);
    conn = -1;
    return 0;
}

static int release_step(void)
{
    int rc = dm_helper_release(helper, rule ? rule : binding.id);
    rule = 0;
    if (rc)
        answer("release", rc);
    else
        printf("release 0\n");
    return 0;
}

static int wait_step(void)
{
    struct pollfd p = {.fd = dm_helper_fd(helper), .events = POLLIN};
    printf("ready\n");
    (void)poll(&p, 1, -1);
    printf("gone\n");
    return 0;
}

static int step(char *s)
{
    char *save = NULL, *word = strtok_r(s, ":", &save), *a = strtok_r(NULL, ":", &save),
         *b = strtok_r(NULL, ":", &save), *c = strtok_r(NULL, ":", &save);
    if (a && b && c && strcmp(word, "rx") == 0)
        return bind_step(a, strtoul(b, NULL, 0), (unsigned)strtoul(c, NULL, 0), true);
    if (a && strcmp(word, "piece") == 0) {
        piece = (uint32_t)strtoul(a, NULL, 0);
        return 0;
    }
    if (a && b && strcmp(word, "memfd") == 0)
        return bind_step(a, strtoul(b, NULL, 0), 1, false);
    if (a && b && strcmp(word, "tx") == 0)
        return bind_step(a, strtoul(b, NULL, 0), 0, true);
    if (a && b && strcmp(word, "connect") == 0)
        return connect_step(a, (uint16_t)strtoul(b, NULL, 0));
    if (a && b && c && strcmp(word, "serve") == 0)
        return serve_step(a, (uint16_t)strtoul(b, NULL, 0), strtoul(c, NULL, 0));
    if (a && b && c && strcmp(word, "race") == 0)
        return race_step(a, (uint16_t)strtoul(b, NULL, 0), (unsigned)strtoul(c, NULL, 0));
    if (strcmp(word, "dissolve") == 0)
        return dissolve_step();
    if (strcmp(word, "steer") == 0)
        return steer_step();
    if (strcmp(word, "ask") == 0)
        return write(conn, "\n", 1) == 1 ? 0 : 1;
    if (strcmp(word, "close") == 0)
        return close_step();
    if (strcmp(word, "release") == 0)
        return release_step();
    if (strcmp(word, "wait") == 0)
        return wait_step();
    fprintf(stderr, "hawserd_client: '%s' is no step\n", word);
    return 1;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 2)
        return 2;
    bool alone = argc > 2 && strncmp(argv[2], "serve:", 6) == 0;
    int rc = alone ? 0 : dm_helper_open(argv[1], 30000, &helper);
    if (rc) {
        answer("open", rc);
        return 1;
    }
    for (int i = 2; i < argc; i++)
        if (step(argv[i]))
            return 1;
    dm_helper_close(helper);
    return 0;
}
