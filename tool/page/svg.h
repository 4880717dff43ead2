/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws inline SVG plots for an HTML page: scales, axes, lines, areas and marks. The page defines colours and fonts.
 * Shapes have classes: "c0" to "c7" set --c, which "line", "area" and "dot" use. The caller ensures that numbers are
 * printed in the C locale.
 */
#ifndef HW_TOOL_SVG_H
#define HW_TOOL_SVG_H

#include "base/base.h"
#include <stdio.h>

#define SVG_COLOURS 8
#define SVG_LEFT    52.0 /* distance from the drawing's edge to the plot's edge */
#define SVG_RIGHT   30.0
#define SVG_LANE    17.0 /* distance between two rows of marks above a plot */
#define SVG_BADGE   26.0 /* width of a badge */

struct svg_scale {
    double lo, hi;
    bool log; /* logarithmic scale; lo must be above 0 */
};

struct svg {
    FILE *f;
    double w, h;                     /* size of the drawing */
    double left, right, top, bottom; /* edges of the plot within the drawing */
    struct svg_scale x, y;
};

/* Formats a value on an axis. */
typedef void (*svg_format)(double value, char *buf, size_t cap);

/* Writes text with & < > and quotes escaped and control characters replaced, or nothing if text is NULL. Writes at
 * most max UTF-8 characters, with an ellipsis if the text was cut; 0 means no limit. */
void svg_escape(FILE *f, const char *text, size_t max);

/* Begins the drawing. label is the drawing's text alternative. Sets the plot's edges from the margins. */
void svg_open(struct svg *s, FILE *f, double w, double h, double top, const char *label);
void svg_close(struct svg *s);

/* Return the position of a value in the drawing, clamped to the plot. */
double svg_x(const struct svg *s, double v);
double svg_y(const struct svg *s, double v);

/* Stores round values within [lo, hi] in out, at steps of 1, 2 or 5 times a power of ten, about `want` of them.
 * Returns how many, up to cap. */
size_t svg_ticks(double lo, double hi, size_t want, double *out, size_t cap);
/* Stores 1, 2 and 5 times powers of ten within [lo, hi] in out, or only powers of ten if there are more than five
 * decades (not all of them if more than twelve); lo must be above 0. Returns how many, up to cap. */
size_t svg_log_ticks(double lo, double hi, double *out, size_t cap);

/* Draw grid lines and labels at the values. On the x axis, a label that would touch the previous label or end to
 * the right of the drawing is omitted. */
void svg_axis_x(struct svg *s, const double *at, size_t n, svg_format fmt, const char *unit);
void svg_axis_y(struct svg *s, const double *at, size_t n, svg_format fmt, const char *unit);

/* Draw a line or an area. class is the value of the class attribute. A point between the first and the last is skipped
 * if its x and y are less than half a unit from those of the previous drawn point. */
void svg_line(struct svg *s, const double *x, const double *y, size_t n, const char *class);
void svg_area(struct svg *s, const double *x, const double *lo, const double *hi, size_t n, const char *class);
/* Draws a dot. hover is a tooltip and may be NULL. */
void svg_dot(struct svg *s, double x, double y, const char *class, const char *hover);

/* Draws a vertical line across the plot at x with a label above, in row `lane`; row 0 is nearest to the plot. */
void svg_mark(struct svg *s, double x, double lane, bool label_left, const char *label, size_t max);

/* Like svg_mark(), but with a number in a badge, for use when labels do not fit. */
void svg_badge(struct svg *s, double x, double lane, size_t number);

/* Returns an upper estimate of the width of a label. */
double svg_text_width(const char *text);

#endif
