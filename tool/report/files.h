/* SPDX-License-Identifier: Apache-2.0 */
/* The files of --json and --report. They are opened before the measurement, so that an unwritable path is reported
 * at once. */
#ifndef HW_TOOL_FILES_H
#define HW_TOOL_FILES_H

#include "tool/page/page.h"

#include <stdbool.h>
#include <stdio.h>

struct report_files {
    const char *json, *report; /* paths from the options, or NULL */
    FILE *lines;               /* stream for JSON lines; NULL if neither file was requested */
    bool made;                 /* true if this command created the report's file */
    FILE *out, *shown; /* out: the terminal's stream; shown: out or, for a report, a stream that writes to out and keeps
                          a copy */
    char *said;        /* copy of the text written to shown */
    size_t n_said;
    struct run run;
    const char *title; /* title of the report; NULL for "hawser bench" */
    struct page_figure figure[4];
    size_t n_figures;
};

/* Checks that the folder of path can be written, and creates nothing. path may be NULL or "-". Returns 0, or a negative
 * errno with the path in hw_error(). */
int report_files_check(const char *path);
/* Opens the files. json is a path, "-" for standard output, or NULL. report is a path or NULL. For a report without
 * json, the lines are kept in memory. Human-readable text is written to f->shown, which passes the text to out and to
 * the report. Returns 0, or a negative errno with the path in hw_error(). */
int report_files_open(struct report_files *f, const char *json, const char *report);
/* Closes f->shown and, if a report was requested, records the run in f->run. */
void report_files_note(struct report_files *f);
/* Writes the requested report if JSON lines were written to a file or memory, and prints the report's path on f->out.
 * Otherwise removes the report's file if this command created it. Closes the files. Returns 0 or a negative errno. The
 * struct may be zeroed. */
int report_files_close(struct report_files *f);
/* Writes a report whose content the caller provides: write() gets a page that has a title, and arg. Does nothing if
 * no report was requested. */
int report_files_page(struct report_files *f, const char *title, void (*write)(struct page *p, const void *arg),
                      const void *arg);

#endif
