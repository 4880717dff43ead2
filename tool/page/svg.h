/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inline SVG plots for an HTML page: scales, axes, lines, areas, marks. The page defines colours and fonts: shapes have
 * classes ("c0" to "c7" set --c; "line", "area", "dot" use it). The caller ensures that numbers are printed in the C
 * locale.
 */
#ifndef HW_TOOL_SVG_H
#define HW_TOOL_SVG_H

#include "base/base.h"
#include <stdio.h>

#define SVG_COLOURS 8
#define SVG_LEFT    52.0 /* from the drawing's edge to the plot's */
#define SVG_RIGHT   30.0
#define SVG_LANE    17.0 /* between two lanes of marks above a plot */
#define SVG_BADGE   26.0 /* width of a badge */

struct svg_scale {
    double lo, hi;
    bool log; /* lo > 0 then */
};

struct svg {
    FILE *f;
    double w, h;                     /* of the drawing */
    double left, right, top, bottom; /* edges of the plot within the drawing */
    struct svg_scale x, y;
};

/* Formats a value on an axis. */
typedef void (*svg_format)(double value, char *buf, size_t cap);

/* Writes text with & < > and quotes escaped, and control characters replaced; nothing for NULL. At most max characters
 * (of UTF-8), with an ellipsis if it was cut; 0: all. */
void svg_escape(FILE *f, const char *text, size_t max);

/* Begins the drawing; label describes it for readers who cannot see it. Sets the plot's edges from the margins. */
void svg_open(struct svg *s, FILE *f, double w, double h, double top, const char *label);
void svg_close(struct svg *s);

/* Return the position of a value in the drawing, limited to the plot. */
double svg_x(const struct svg *s, double v);
double svg_y(const struct svg *s, double v);

/* Writes round steps that cover [lo, hi]: 1, 2 or 5 times a power of ten, about `want` of them. Returns how many, up to
 * cap. */
size_t svg_ticks(double lo, double hi, size_t want, double *out, size_t cap);
/* Writes 1, 2 and 5 times powers of ten within [lo, hi]; lo > 0. */
size_t svg_log_ticks(double lo, double hi, double *out, size_t cap);

/* Draw grid lines and labels at the values; omit labels that would touch the previous one. */
void svg_axis_x(struct svg *s, const double *at, size_t n, svg_format fmt, const char *unit);
void svg_axis_y(struct svg *s, const double *at, size_t n, svg_format fmt, const char *unit);

/* class: value of the class attribute. Points closer than half a unit to the previous one are merged with it. */
void svg_line(struct svg *s, const double *x, const double *y, size_t n, const char *class);
void svg_area(struct svg *s, const double *x, const double *lo, const double *hi, size_t n, const char *class);
/* hover: text shown under a pointer; may be NULL. */
void svg_dot(struct svg *s, double x, double y, const char *class, const char *hover);

/* Draws a vertical line across the plot at x with a label above it, in lane `lane` (0 is nearest to the plot). */
void svg_mark(struct svg *s, double x, double lane, bool label_left, const char *label, size_t max);

/* The same with a number in a badge on the line, if labels do not fit. */
void svg_badge(struct svg *s, double x, double lane, size_t number);

/* Returns an upper estimate of a label's width. */
double svg_text_width(const char *text);

#endif
