/* SPDX-License-Identifier: Apache-2.0 */
/* The files of --json and --report: opened before the measurement, so that a missing folder is an error at once. */
#ifndef HW_TOOL_FILES_H
#define HW_TOOL_FILES_H

#include "tool/page/page.h"

#include <stdbool.h>
#include <stdio.h>

struct report_files {
    const char *json, *report; /* from the options; NULL: none */
    FILE *lines;               /* for JSON lines; NULL: neither was requested */
    bool made;                 /* the report's file did not exist before */
    FILE *out, *shown;         /* the terminal's stream; a stream to it with a copy for the report */
    char *said;                /* the copy */
    size_t n_said;
    struct run run;
    const char *title; /* of the report; NULL: hawser bench */
    struct page_figure figure[4];
    size_t n_figures;
};

/* Opens the files. json: a file, "-" for standard output, or NULL; report: a file or NULL; for a report without json
 * the lines are kept in memory. Text for people then goes to f->shown: to out, and to the report. -errno naming the
 * file that cannot be written. */
int report_files_open(struct report_files *f, const char *json, const char *report);
/* Ends f->shown and records the run in f->run and f->said for a report. */
void report_files_note(struct report_files *f);
/* Writes the report, if there are lines, and reports that on f->out. -errno as above. A zeroed struct is allowed. */
int report_files_close(struct report_files *f);
/* The same, with a page that the caller writes: write() gets a page with a title, and arg. Does nothing if no report is
 * requested. */
int report_files_page(struct report_files *f, const char *title, void (*write)(struct page *p, const void *arg),
                      const void *arg);

#endif
