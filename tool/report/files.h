/* SPDX-License-Identifier: Apache-2.0 */
/* The files of --json and --report: opened before anything is measured, so that a folder that is not there is an error
 * at once. */
#ifndef HW_TOOL_FILES_H
#define HW_TOOL_FILES_H

#include <stdbool.h>
#include <stdio.h>

struct report_files {
    const char *json, *report; /* as the options have them; NULL: none */
    FILE *lines;               /* JSON lines go there; NULL: neither is asked for */
    bool made;                 /* the report's file was not there before */
};

/* json: a file, "-" for standard output, or NULL; report: a file or NULL, for which the lines are kept in memory where
 * json is NULL. -errno naming the file that cannot be written. */
int report_files_open(struct report_files *f, const char *json, const char *report);
/* Writes the report, if there are lines, and says so on out. -errno as above. All zero is allowed. */
int report_files_close(struct report_files *f, FILE *out);

#endif
