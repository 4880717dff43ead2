/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/broker/audit.h"
#include "sys/json.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define A_SECOND  (1000 * HW_MS)
#define MOST      100 /* maximum number of refusals that are written per second */
#define TEXT_MOST 600

/* Escapes text that an application may have chosen, because it may be shown on a terminal: every backslash and every
 * byte that is not printable ASCII becomes \xNN. Limits the length, so that a line stays below 4096 bytes even if JSON
 * doubles each backslash. */
static const char *escape_audit_text(char *out, size_t cap, const char *text)
{
    size_t n = 0;
    for (const unsigned char *s = (const unsigned char *)(text ? text : ""); *s && n + 5 <= cap; s++)
        if (*s >= 0x20 && *s < 0x7f && *s != '\\')
            out[n++] = (char)*s;
        else
            n += (size_t)snprintf(out + n, cap - n, "\\x%02x", *s);
    out[n] = 0;
    return out;
}

static void write_audit_time(struct hw_json *j)
{
    struct timespec t;
    struct tm tm;
    char text[40];
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    size_t n = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text + n, sizeof(text) - n, ".%03ldZ", t.tv_nsec / 1000000);
    hw_json_str(j, "time", text);
}

static void write_audit_line(struct vb_audit *a, const char *line, size_t n)
{
    ssize_t rc;
    do
        rc = write(a->fd, line, n);
    while (rc < 0 && errno == EINTR);
    if (rc != (ssize_t)n)
        hw_log(a->log, HAWSER_LOG_ERROR, "verbs: a line of the audit file was lost: %s",
               rc < 0 ? hw_errno_name(errno) : "the write was incomplete");
}

/* Begins a JSON object in *line. Returns the stream to write to, or NULL if out of memory. */
static FILE *begin_audit_line(struct hw_json *j, char **line, size_t *len)
{
    FILE *out = open_memstream(line, len);
    if (!out)
        return NULL;
    hw_json_init(j, out);
    hw_json_object(j, NULL);
    write_audit_time(j);
    return out;
}

static void end_audit_line(struct vb_audit *a, struct hw_json *j, FILE *out, char **line, const size_t *len)
{
    hw_json_end(j);
    int rc = hw_json_finish(j);
    if (fclose(out) == 0 && rc == 0)
        write_audit_line(a, *line, *len);
    else
        hw_log(a->log, HAWSER_LOG_ERROR, "verbs: a line of the audit file was lost: out of memory");
    free(*line);
}

/* Reports the number of refusals that were not written, if there were any. */
static void left_out(struct vb_audit *a)
{
    struct hw_json j;
    char *line = NULL;
    size_t len;
    unsigned n = a->dropped;
    a->dropped = 0;
    if (n == 0)
        return;
    hw_log(a->log, HAWSER_LOG_WARN, "verbs: %u more refusal%s not reported", n, hw_plural(n));
    FILE *out = a->fd >= 0 ? begin_audit_line(&j, &line, &len) : NULL;
    if (!out)
        return;
    hw_json_u64(&j, "left_out", n);
    end_audit_line(a, &j, out, &line, &len);
}

static bool too_many(struct vb_audit *a)
{
    uint64_t now = hw_now();
    if (a->window == 0 || now - a->window >= A_SECOND) {
        left_out(a);
        a->window = now;
        a->written = 0;
    }
    if (a->written < MOST) {
        a->written++;
        return false;
    }
    a->dropped++;
    return true;
}

int vb_audit_open(struct vb_audit *a, const char *path, const struct hw_logger *log)
{
    struct stat s;
    memset(a, 0, sizeof(*a));
    a->fd = -1;
    a->log = log;
    if (!path)
        return 0;
    /* With O_NONBLOCK, open() does not wait for a reader if the path is a FIFO. */
    a->fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK, 0640);
    if (a->fd < 0)
        return hw_fail(-errno, "audit file %s: %s", path, hw_errno_name(errno));
    if (fstat(a->fd, &s) == 0 && S_ISREG(s.st_mode))
        return 0;
    hw_close(&a->fd);
    return hw_fail(-EINVAL, "audit file %s: not a regular file", path);
}

void vb_audit_close(struct vb_audit *a)
{
    left_out(a);
    hw_close(&a->fd);
}

void vb_audit_refusal(struct vb_audit *a, const struct vb_refusal *r)
{
    char container[160], program[80], device[80], command[TEXT_MOST], rule[100], text[300];
    struct hw_json j;
    char *line = NULL;
    size_t len;
    if (too_many(a))
        return;
    escape_audit_text(container, sizeof(container), r->container);
    escape_audit_text(program, sizeof(program), r->program);
    escape_audit_text(device, sizeof(device), r->device);
    escape_audit_text(command, sizeof(command), r->command);
    escape_audit_text(rule, sizeof(rule), r->rule);
    escape_audit_text(text, sizeof(text), r->text);
    hw_log(a->log, HAWSER_LOG_WARN, "verbs: container %s, %s (%d), %s: %s refused with %s%s%s: %s",
           *container ? container : "-", *program ? program : "?", (int)r->pid, *device ? device : "-", command,
           hw_errno_name(-r->rc), *rule ? " by " : "", rule, text);
    if (a->fd < 0)
        return;
    FILE *out = begin_audit_line(&j, &line, &len);
    if (!out) {
        hw_log(a->log, HAWSER_LOG_ERROR, "verbs: a line of the audit file was lost: out of memory");
        return;
    }
    hw_json_str(&j, "container", container);
    hw_json_i64(&j, "pid", r->pid);
    hw_json_str(&j, "program", program);
    hw_json_str(&j, "device", device);
    hw_json_str(&j, "command", command);
    hw_json_str(&j, "rule", rule);
    hw_json_str(&j, "text", text);
    hw_json_str(&j, "errno", hw_errno_name(-r->rc));
    end_audit_line(a, &j, out, &line, &len);
}
