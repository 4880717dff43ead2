/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/report/files.h"

#include "tool/report/report.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int report_files_check(const char *path)
{
    if (!path || strcmp(path, "-") == 0)
        return 0;
    const char *slash = strrchr(path, '/');
    HW_AUTO_FREE char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    if (!folder)
        return hw_no_memory("the name of a folder");
    return access(folder, W_OK) < 0 ? hw_fail(-errno, "writing %s: %s", path, strerror(errno)) : 0;
}

static int open_report(struct report_files *f)
{
    int fd = open(f->report, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    f->made = fd >= 0;
    if (fd < 0 && errno == EEXIST)
        fd = open(f->report, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return hw_fail(-errno, "writing %s: %s", f->report, strerror(errno));
    hw_close(&fd);
    return 0;
}

static int open_lines(struct report_files *f)
{
    if (f->json && strcmp(f->json, "-") == 0) {
        f->lines = stdout;
        return 0;
    }
    int fd = f->json ? open(f->json, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)
                     : memfd_create("hawser-report", MFD_CLOEXEC);
    f->lines = fd < 0 ? NULL : fdopen(fd, "w+");
    if (f->lines)
        return 0;
    const int rc = hw_fail(-errno, "writing %s: %s", f->json ? f->json : f->report, strerror(errno));
    hw_close(&fd);
    return rc;
}

static ssize_t write_shown(void *arg, const char *text, size_t len)
{
    struct report_files *f = arg;
    char *more = realloc(f->said, f->n_said + len + 1);
    if (more) {
        memcpy(more + f->n_said, text, len);
        f->said = more;
        f->n_said += len;
        f->said[f->n_said] = 0;
    }
    const size_t put = fwrite(text, 1, len, f->out);
    (void)fflush(f->out);
    return put == len ? (ssize_t)len : 0;
}

/* Opens f->shown. The stream keeps a pointer to f, so f must not move in memory. */
static int open_shown(struct report_files *f)
{
    if (!f->report) {
        f->shown = f->out;
        return 0;
    }
    f->shown = fopencookie(f, "w", (cookie_io_functions_t){.write = write_shown});
    return f->shown ? setvbuf(f->shown, NULL, _IOLBF, BUFSIZ) : hw_no_memory("the report");
}

int report_files_open(struct report_files *f, const char *json, const char *report)
{
    *f = (struct report_files){.json = json, .report = report};
    f->out = f->shown = json && strcmp(json, "-") == 0 ? stderr : stdout;
    int rc = report ? open_report(f) : 0;
    if (rc == 0)
        rc = open_shown(f);
    return rc < 0 || (!json && !report) ? rc : open_lines(f);
}

void report_files_note(struct report_files *f)
{
    if (f->shown && f->shown != f->out)
        (void)fclose(f->shown);
    f->shown = f->out;
    if (f->report)
        run_note(&f->run);
}

static void say_report(const struct report_files *f)
{
    fprintf(f->out, "\nReport: %s\n", f->report);
}

static void forget_files(struct report_files *f)
{
    free(f->said);
    *f = (struct report_files){0};
}

int report_files_page(struct report_files *f, const char *title, void (*write)(struct page *p, const void *arg),
                      const void *arg)
{
    struct page p;
    if (!f->report)
        return 0;
    report_files_note(f);
    int rc = page_begin(&p, f->report, title);
    if (rc < 0)
        return rc;
    write(&p, arg);
    page_said(&p, f->said);
    page_run(&p, &f->run);
    rc = page_end(&p, 0);
    if (rc == 0)
        say_report(f);
    f->report = NULL; /* the page replaces a report of the JSON lines */
    return rc;
}

int report_files_close(struct report_files *f)
{
    int rc = 0;
    const bool own = f->lines && f->lines != stdout;
    report_files_note(f);
    const struct report_frame frame = {
        .run = &f->run, .said = f->said, .title = f->title, .figures = f->figure, .n_figures = f->n_figures};
    if (own && fflush(f->lines) != 0)
        rc = hw_fail(-errno, "writing %s: %s", f->json ? f->json : f->report, strerror(errno));
    const bool some = rc == 0 && own && ftell(f->lines) > 0;
    if (f->report && some) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(f->lines));
        rc = report_html(f->json ? f->json : path, f->report, &frame);
        if (rc == 0)
            say_report(f);
    } else if (f->report && f->made) {
        (void)unlink(f->report); /* there is nothing to report */
    }
    if (own && fclose(f->lines) != 0 && rc == 0)
        rc = hw_fail(-errno, "writing %s: %s", f->json ? f->json : f->report, strerror(errno));
    forget_files(f);
    return rc;
}
