/* SPDX-License-Identifier: Apache-2.0 */
/* Resolves names to addresses. The C library's lookup has no deadline, so the lookup runs in a separate thread that the
 * caller may abandon. */
#include "context/context.h"

#include "base/thread.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADDRESSES 16

struct lookup {
    pthread_mutex_t lock;
    pthread_cond_t over;
    bool is_over, left; /* left: the caller no longer waits */
    int rc, error;      /* result of getaddrinfo(), and errno */
    size_t n;
    union hw_addr found[ADDRESSES];
    char service[8];
    char host[];
};

static void free_lookup(struct lookup *l)
{
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->over);
    free(l);
}

static void *look_up(void *arg)
{
    struct lookup *l = arg;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list = NULL;
    hw_own_thread = true;
    int rc = getaddrinfo(l->host, l->service, &hints, &list), error = errno;
    for (const struct addrinfo *i = list; rc == 0 && i && l->n < ADDRESSES; i = i->ai_next)
        if (i->ai_family == AF_INET || i->ai_family == AF_INET6)
            memcpy(&l->found[l->n++], i->ai_addr, i->ai_addrlen);
    if (list)
        freeaddrinfo(list);
    pthread_mutex_lock(&l->lock);
    l->rc = rc;
    l->error = error;
    l->is_over = true;
    bool left = l->left;
    pthread_cond_signal(&l->over);
    pthread_mutex_unlock(&l->lock);
    if (left)
        free_lookup(l);
    return NULL;
}

static struct lookup *start_lookup(const char *host, uint16_t port, int *rc)
{
    struct lookup *l = calloc(1, sizeof *l + strlen(host) + 1);
    pthread_t thread;
    if (!l) {
        *rc = hw_no_memory("looking up \"%s\"", host);
        return NULL;
    }
    memcpy(l->host, host, strlen(host) + 1);
    snprintf(l->service, sizeof l->service, "%u", port);
    pthread_mutex_init(&l->lock, NULL);
    hw_cond_init(&l->over);
    *rc = hw_thread_start(&thread, look_up, l, "a thread to look up a name");
    if (*rc < 0) {
        free_lookup(l);
        return NULL;
    }
    pthread_detach(thread);
    return l;
}

static int explain_lookup(const struct lookup *l)
{
    int rc = l->rc == EAI_SYSTEM ? -l->error : l->rc == EAI_MEMORY ? -ENOMEM : -EHOSTUNREACH;
    return hw_fail(rc, "looking up \"%s\": %s", l->host,
                   l->rc == EAI_SYSTEM ? strerror(l->error) : gai_strerror(l->rc));
}

int hw_lookup(const char *host, uint16_t port, uint64_t deadline, union hw_addr *out, size_t max)
{
    int rc = 0;
    memset(out, 0, max * sizeof *out);
    if (inet_pton(AF_INET, host, &out->in.sin_addr) == 1 || inet_pton(AF_INET6, host, &out->in6.sin6_addr) == 1) {
        out->sa.sa_family = strchr(host, ':') ? AF_INET6 : AF_INET;
        hw_addr_set_port(out, port);
        return 1; /* numeric addresses, the usual case, need no thread */
    }
    struct lookup *l = start_lookup(host, port, &rc);
    if (!l)
        return rc;
    struct timespec t = hw_timespec(deadline);
    pthread_mutex_lock(&l->lock);
    while (!l->is_over && rc == 0)
        rc = -pthread_cond_timedwait(&l->over, &l->lock, &t);
    bool over = l->is_over;
    l->left = !over;
    pthread_mutex_unlock(&l->lock);
    if (!over)
        return hw_fail(-ETIMEDOUT, "looking up \"%s\": no answer before the deadline", host);
    rc = l->rc ? explain_lookup(l) : l->n ? (int)HW_MIN(l->n, max) : -EHOSTUNREACH;
    if (rc == -EHOSTUNREACH && !l->rc)
        rc = hw_fail(rc, "\"%s\" has no IP address", host);
    for (int i = 0; i < rc; i++)
        out[i] = l->found[i];
    free_lookup(l);
    return rc;
}
