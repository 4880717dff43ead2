/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets for the plugins here: TCP over IPv4, nothing that blocks. */
#ifndef PLUGIN_WIRE_H
#define PLUGIN_WIRE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* The address of an interface ("lo", "eth1"); false: it has none. Port 0. */
bool wire_address(const char *interface, struct sockaddr_in *out);

/* A listening socket there, its port filled in; -1. */
int wire_listen(struct sockaddr_in *at);
/* The next connection; -1: none yet. */
int wire_accept(int fd);
/* Starts to connect, from this address; -1. */
int wire_connect(const struct sockaddr_in *from, const struct sockaddr_in *to);
/* 1 it is connected, 0 not yet, -1 it never will be. */
int wire_connected(int fd);
/* Both ends are addresses of this machine. */
bool wire_is_loopback(int fd);

/* Bytes taken or got; 0: not now; -1: broken, or closed by the other end. */
ssize_t wire_put(int fd, const void *from, size_t len);
ssize_t wire_get(int fd, void *to, size_t len);
ssize_t wire_getv(int fd, struct iovec *iov, int n);

/* A fixed-size message that may come or go in pieces. */
struct wire_msg {
    uint8_t bytes[32];
    size_t len, done;
};
/* 1 it is all there or gone, 0 not yet, -1 broken. */
int wire_msg_get(int fd, struct wire_msg *m);
int wire_msg_put(int fd, struct wire_msg *m);

/* splitmix64: numbers that a seed repeats. */
static inline uint64_t wire_random(uint64_t *state)
{
    uint64_t x = (*state += 0x9e3779b97f4a7c15u);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#endif
