/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/report/files.h"

#include "tool/report/report.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

int report_files_open(struct report_files *f, const char *json, const char *report)
{
    *f = (struct report_files){.json = json, .report = report};
    int rc = report ? open_report(f) : 0;
    return rc < 0 || (!json && !report) ? rc : open_lines(f);
}

int report_files_close(struct report_files *f, FILE *out)
{
    int rc = 0;
    const bool own = f->lines && f->lines != stdout;
    if (own && fflush(f->lines) != 0)
        rc = hw_fail(-errno, "writing %s: %s", f->json ? f->json : f->report, strerror(errno));
    const bool some = rc == 0 && own && ftell(f->lines) > 0;
    if (f->report && some) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(f->lines));
        rc = report_html(f->json ? f->json : path, f->report);
        if (rc == 0)
            fprintf(out, "\nReport: %s\n", f->report);
    } else if (f->report && f->made) {
        (void)unlink(f->report); /* nothing to show */
    }
    if (own && fclose(f->lines) != 0 && rc == 0)
        rc = hw_fail(-errno, "writing %s: %s", f->json ? f->json : f->report, strerror(errno));
    *f = (struct report_files){0};
    return rc;
}
