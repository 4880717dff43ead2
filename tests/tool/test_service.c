/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a service whose attempt to start a thread for a client fails (linked with --wrap). */
#include "tests/tap.h"
#include "tool/serve/service.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static bool fails;

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
    if (!fails)
        return __real_pthread_create(t, a, fn, arg);
    tool_stop = SIGTERM; /* ends the service */
    return EAGAIN;
}

int main(void)
{
    const struct service_options o = {.cmd = "mesh", .max_memory = 1 << 20, .limit_name = "--limit", .quiet = true};
    const struct hawser_options options = {.size = sizeof options};
    struct service_summary sum;
    hawser *h = NULL, *client = NULL;
    hawser_peer *p = NULL;
    char text[400];
    uint16_t port = 0;
    if (hawser_open(&options, &h) < 0 || hawser_open(&options, &client) < 0 ||
        hawser_listen(h, "127.0.0.1", 0, &port) < 0 || hawser_connect(client, "127.0.0.1", port, NULL, 20000, &p) < 0) {
        printf("Bail out! %s\n", hawser_error());
        return 1;
    }
    FILE *said = tmpfile();
    int keep = dup(STDERR_FILENO);
    fails = true;
    dup2(fileno(said), STDERR_FILENO);
    int rc = service_run(h, &o, &sum);
    dup2(keep, STDERR_FILENO);
    fails = false;
    rewind(said);
    size_t n = fread(text, 1, sizeof text - 1, said);
    text[n] = 0;
    ok(rc == 0 && sum.clients == 0, "the service goes on without the client");
    ok(strncmp(text, "hawser mesh: starting a thread for client", 41) == 0,
       "the line begins with the command that runs the service: %.*s", (int)strcspn(text, "\n"), text);
    fclose(said);
    close(keep);
    hawser_peer_close(p);
    hawser_close(client);
    hawser_close(h);
    return tap_done();
}
