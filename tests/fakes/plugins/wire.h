/* SPDX-License-Identifier: Apache-2.0 */
/* Nonblocking TCP over IPv4 for the tcpxlike and rude plugins. */
#ifndef PLUGIN_WIRE_H
#define PLUGIN_WIRE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* Gets the IPv4 address of an interface such as "lo", with port 0. Returns false if the interface has no address. */
bool wire_address(const char *interface, struct sockaddr_in *out);

/* Returns a listening socket at this address and stores its port in *at, or returns -1. */
int wire_listen(struct sockaddr_in *at);
/* Returns the next connection, or -1 if there is none. */
int wire_accept(int fd);
/* Starts to connect between these addresses. Returns the socket or -1. */
int wire_connect(const struct sockaddr_in *from, const struct sockaddr_in *to);
/* Returns 1 if the socket is connected, 0 if not yet, or -1 on failure. */
int wire_connected(int fd);
/* Returns true if both ends of the connection are on this machine. */
bool wire_is_loopback(int fd);

/* Return the number of bytes transferred, 0 if none can be transferred now, or -1 if the connection is broken or
 * closed. */
ssize_t wire_put(int fd, const void *from, size_t len);
ssize_t wire_get(int fd, void *to, size_t len);
ssize_t wire_getv(int fd, struct iovec *iov, int n);

/* A message of fixed size, which may be transferred in pieces. */
struct wire_msg {
    uint8_t bytes[32];
    size_t len, done;
};
/* Return 1 if the message is complete, 0 if not yet, or -1 if the connection is broken. */
int wire_msg_get(int fd, struct wire_msg *m);
int wire_msg_put(int fd, struct wire_msg *m);

/* splitmix64: returns a sequence of numbers that depends only on the seed. */
static inline uint64_t wire_random(uint64_t *state)
{
    uint64_t x = (*state += 0x9e3779b97f4a7c15u);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#endif
