/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One self-contained HTML page, the frame of all reports. The page has no script, font or image, follows the reader's
 * light or dark mode, and is readable on a phone and on paper. It may have key figures, the terminal's output, facts
 * about the run, and tables with explanations of their columns. Text is escaped, except hawser's own texts, which may
 * contain markup: headings, column titles and explanations, notes below tables, and the names, values and units of key
 * figures.
 */
#ifndef HW_TOOL_PAGE_H
#define HW_TOOL_PAGE_H

#include "tool/page/run.h"

#include <locale.h>
#include <stdio.h>

struct page_column {
    const char *head, *help; /* help is NULL if no explanation is needed */
    bool text;               /* left-aligned */
};

struct page {
    FILE *f;
    const char *path, *class;
    locale_t c, old;
    const struct page_column *col;
    size_t n_col;
};

/* Creates the file and writes the beginning of the page, including its title. Returns 0, or a negative errno;
 * page_end() must not be called after an error. */
int page_begin(struct page *p, const char *path, const char *title);
/* Ends and closes the page. rc is an earlier error or 0. Returns rc, or -EIO if rc is 0 and the file could not be
 * written. */
int page_end(struct page *p, int rc);

void page_cards(struct page *p);
struct page_figure {
    char what[40], value[32], unit[16], class[8], note[120];
};
/* Writes sentences about what the run has shown; the array is NULL-terminated. */
void page_proved(struct page *p, const char *const *sentence);
/* Writes one key figure. unit and class ("good", "warn", "bad") may be "". */
void page_card(struct page *p, const char *what, const char *value, const char *unit, const char *class,
               const char *note);
void page_cards_end(struct page *p);

/* Write a section with a table: page_table(), content above the table, page_heads(), rows, page_table_end(). class
 * may be "" and note may be NULL. col must live until page_table_end(). */
void page_table(struct page *p, const char *heading, const char *class);
void page_heads(struct page *p, const struct page_column *col, size_t n);
void page_row(struct page *p);
void page_text(struct page *p, const char *text, const char *class);
/* Writes a number in a cell. NAN, for a value that was not measured, is written as a dash. */
void page_number(struct page *p, double v, void (*fmt)(double v, char *buf, size_t cap), const char *class);
void page_row_end(struct page *p);
void page_table_end(struct page *p, const char *note);

/* Writes the date, the command line, and the host, version, kernel, GPUs and NICs of this node and of the peer, if
 * there is one. */
void page_run(struct page *p, const struct run *r);
/* Writes the terminal's output, each line with at most 511 bytes, or nothing if text is NULL or empty. */
void page_said(struct page *p, const char *text);

#endif
