/* SPDX-License-Identifier: Apache-2.0 */
/* The files of --json and --report: opened before anything is measured, so that a folder that is not there is an error
 * at once. */
#ifndef HW_TOOL_FILES_H
#define HW_TOOL_FILES_H

#include "tool/page/page.h"

#include <stdbool.h>
#include <stdio.h>

struct report_files {
    const char *json, *report; /* as the options have them; NULL: none */
    FILE *lines;               /* JSON lines go there; NULL: neither is asked for */
    bool made;                 /* the report's file was not there before */
    FILE *out, *shown;         /* the terminal's; and that stream with a copy for the report */
    char *said;                /* the copy */
    size_t n_said;
    struct run run;
    const char *title; /* of the report; NULL: hawser bench */
    struct page_figure figure[4];
    size_t n_figures;
};

/* json: a file, "-" for standard output, or NULL; report: a file or NULL, for which the lines are kept in memory where
 * json is NULL. Then what people are told goes to f->shown: out, which a report repeats. -errno naming the file that
 * cannot be written. */
int report_files_open(struct report_files *f, const char *json, const char *report);
/* Ends f->shown and notes what the run was, in f->run and f->said, for a report. */
void report_files_note(struct report_files *f);
/* Writes the report, if there are lines, and says so on f->out. -errno as above. All zero is allowed. */
int report_files_close(struct report_files *f);
/* The same, with a page that the caller writes: write() gets arg and a page that has a title. Nothing where no report
 * is asked for. */
int report_files_page(struct report_files *f, const char *title, void (*write)(struct page *p, const void *arg),
                      const void *arg);

#endif
