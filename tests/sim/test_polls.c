/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how many polls of a driver it takes to find bytes that arrive on one of several sources. */
#include "core/driver.h"
#include "tests/tap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SOURCES 8
#define ROUNDS  400
#define LIMIT   1000 /* number of polls after which bytes count as lost */

static struct hw_driver driver;

static struct line {
    struct hw_source source;
    int fd[2];
    unsigned got;
} line[SOURCES];

static bool read_line(struct hw_source *s, uint32_t events)
{
    struct line *l = hw_container_of(s, struct line, source);
    char c;
    (void)events;
    if (recv(l->fd[0], &c, 1, MSG_DONTWAIT) != 1)
        return false;
    l->got++;
    return true;
}

static void read_ready_line(struct hw_source *s, uint32_t events)
{
    while (read_line(s, events))
        ;
}

/* Reads a byte and closes the line, as a rail does that finds an error. */
static bool read_and_close_line(struct hw_source *s, uint32_t events)
{
    struct line *l = hw_container_of(s, struct line, source);
    if (!read_line(s, events))
        return false;
    hw_driver_forget(&driver, l->fd[0], s);
    return true;
}

static bool is_never(void *arg)
{
    (void)arg;
    return false;
}

static void open_lines(void)
{
    if (hw_driver_init(&driver, &driver, 1) < 0)
        abort();
    hw_driver_enter(&driver);
    for (unsigned i = 0; i < SOURCES; i++) {
        line[i] = (struct line){.source = {.ready = read_ready_line, .look = read_line}};
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, line[i].fd) != 0 ||
            hw_driver_watch(&driver, line[i].fd[0], &line[i].source) < 0)
            abort();
    }
    hw_driver_end(&driver);
}

static void close_lines(void)
{
    hw_driver_enter(&driver);
    for (unsigned i = 0; i < SOURCES; i++) {
        hw_driver_forget(&driver, line[i].fd[0], &line[i].source);
        close(line[i].fd[0]);
        close(line[i].fd[1]);
    }
    hw_driver_end(&driver);
    hw_driver_free(&driver);
}

/* Sends a byte on the line. Returns the number of polls that it takes to read the byte. */
static unsigned count_polls(struct line *l)
{
    unsigned polls = 0, before = l->got;
    if (write(l->fd[1], "x", 1) != 1)
        abort();
    while (l->got == before && polls < LIMIT) {
        hw_driver_poll(&driver, is_never, NULL);
        polls++;
    }
    return polls;
}

/* Sends bytes on n lines in turns. Returns the mean number of polls for a byte, after an eighth of the rounds. */
static double measure(unsigned n)
{
    unsigned sum = 0, rounds = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned polls = count_polls(&line[i % n]);
        if (i < ROUNDS / 8)
            continue;
        sum += polls;
        rounds++;
    }
    return (double)sum / rounds;
}

int main(void)
{
    static const struct {
        unsigned lines;
        double most;
    } want[] = {{1, 1.2}, {2, 2.5}, {SOURCES, 5}, {1, 1.2}, {2, 2.5}};
    open_lines();
    for (unsigned i = 0; i < HW_ARRAY_LEN(want); i++) {
        double polls = measure(want[i].lines);
        ok(polls <= want[i].most, "%u sources in turns: %.2f polls for a byte, at most %.1f", want[i].lines, polls,
           want[i].most);
    }
    line[1].source.look = read_and_close_line;
    unsigned before = line[1].got;
    is_int(count_polls(&line[1]) < LIMIT, 1, "a source may be closed while it is polled");
    if (write(line[1].fd[1], "x", 1) != 1)
        abort();
    for (unsigned i = 0; i < 100; i++)
        hw_driver_poll(&driver, is_never, NULL);
    is_int(line[1].got, before + 1, "and is not polled again");
    close_lines();
    open_lines();
    ok(measure(1) <= 1.2, "and the sources of another driver are polled");
    close_lines();
    return tap_done();
}
