/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/page/svg.h"

#include <math.h>
#include <string.h>

#define LABEL_PX 7.0 /* width of a character at 12 px, rounded up for the usual sans-serif fonts */

/* Returns true for U+202A to U+202E and U+2066 to U+2069, which change the direction of the following text. */
static bool is_bidi_control(const unsigned char *p)
{
    return p[0] == 0xe2 &&
           ((p[1] == 0x80 && p[2] >= 0xaa && p[2] <= 0xae) || (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9));
}

void svg_escape(FILE *f, const char *text, size_t max)
{
    size_t n = 0;
    for (const unsigned char *p = (const unsigned char *)(text ? text : ""); *p; p++) {
        if (max && (*p & 0xc0) != 0x80 &&
            n++ == max) { /* a byte 10xxxxxx continues a character; any other byte starts one */
            fputs("\u2026", f);
            return;
        }
        if (is_bidi_control(p)) {
            fputs("\ufffd", f);
            p += 2;
            continue;
        }
        switch (*p) {
        case '&':
            fputs("&amp;", f);
            break;
        case '<':
            fputs("&lt;", f);
            break;
        case '>':
            fputs("&gt;", f);
            break;
        case '"':
            fputs("&quot;", f);
            break;
        case '\'':
            fputs("&#39;", f);
            break;
        default:
            if (*p < 0x20 || *p == 0x7f)
                fputs("\ufffd", f);
            else
                fputc(*p, f);
        }
    }
}

double svg_text_width(const char *text)
{
    double n = 0;
    for (; *text; text++)
        n += (*text & 0xc0) != 0x80;
    return n * LABEL_PX;
}

void svg_open(struct svg *s, FILE *f, double w, double h, double top, const char *label)
{
    *s = (struct svg){.f = f, .w = w, .h = h, .left = SVG_LEFT, .right = w - SVG_RIGHT, .top = top, .bottom = h - 46};
    fprintf(f, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", w, h);
    svg_escape(f, label, 0);
    fputs("\">\n", f);
}

void svg_close(struct svg *s)
{
    fputs("</svg>\n", s->f);
}

static double compute_scale_fraction(const struct svg_scale *sc, double v)
{
    double lo = sc->lo, hi = sc->hi;
    if (sc->log) {
        v = log(HW_MAX(v, lo));
        lo = log(lo);
        hi = log(hi);
    }
    double t = hi > lo ? (v - lo) / (hi - lo) : 0.5;
    return HW_MIN(HW_MAX(t, 0.0), 1.0);
}

double svg_x(const struct svg *s, double v)
{
    return s->left + compute_scale_fraction(&s->x, v) * (s->right - s->left);
}

double svg_y(const struct svg *s, double v)
{
    return s->bottom - compute_scale_fraction(&s->y, v) * (s->bottom - s->top);
}

size_t svg_ticks(double lo, double hi, size_t want, double *out, size_t cap)
{
    if (!(hi > lo) || want < 1)
        return 0;
    double raw = (hi - lo) / (double)want, p = pow(10, floor(log10(raw))), m = raw / p;
    double step = p * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
    double first = ceil(lo / step - 1e-9);
    size_t n = 0;
    while (n < cap && (first + (double)n) * step <= hi + step * 1e-9) {
        out[n] = (first + (double)n) * step;
        n++;
    }
    return n;
}

size_t svg_log_ticks(double lo, double hi, double *out, size_t cap)
{
    static const double m[] = {1, 2, 5};
    size_t n = 0;
    double decades = ceil(log10(hi / lo)), step = pow(10, HW_MAX(1.0, ceil(decades / 12)));
    size_t each = decades > 5 ? 1 : HW_ARRAY_LEN(m); /* over many decades, powers of ten suffice */
    for (double p = pow(10, floor(log10(lo))); p <= hi && n < cap; p *= step)
        for (size_t i = 0; i < each && n < cap; i++)
            if (p * m[i] >= lo * (1 - 1e-9) && p * m[i] <= hi * (1 + 1e-9))
                out[n++] = p * m[i];
    return n;
}

static void text_at(struct svg *s, double x, double y, const char *class, const char *text)
{
    fprintf(s->f, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    svg_escape(s->f, text, 0);
    fputs("</text>\n", s->f);
}

void svg_axis_x(struct svg *s, const double *at, size_t n, svg_format fmt, const char *unit)
{
    char label[64];
    double free_from = -1e9;
    fprintf(s->f, "<path class=\"axis\" d=\"M%.1f %.1fH%.1f\"/>\n", s->left, s->bottom, s->right);
    for (size_t i = 0; i < n; i++) {
        fmt(at[i], label, sizeof(label));
        double x = svg_x(s, at[i]), half = svg_text_width(label) / 2;
        fprintf(s->f, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>\n", x, s->bottom, s->top);
        if (x - half < free_from || x + half > s->w)
            continue;
        text_at(s, x, s->bottom + 18, "mid", label);
        free_from = x + half + 8;
    }
    text_at(s, (s->left + s->right) / 2, s->h - 6, "mid unit", unit);
}

void svg_axis_y(struct svg *s, const double *at, size_t n, svg_format fmt, const char *unit)
{
    char label[64];
    for (size_t i = 0; i < n; i++) {
        double y = svg_y(s, at[i]);
        fmt(at[i], label, sizeof(label));
        fprintf(s->f, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>\n", s->left, y, s->right);
        text_at(s, s->left - 8, y + 4, "end", label);
    }
    text_at(s, 4, s->top - 14, "unit", unit);
}

/* Writes the points as a part of a path. `first`, 'M' or 'L', is the command of the first point. back reverses the
 * order of the points. */
static void path_points(struct svg *s, const double *x, const double *y, size_t n, char first, bool back)
{
    double lx = -1e9, ly = -1e9;
    for (size_t k = 0; k < n; k++) {
        size_t i = back ? n - 1 - k : k;
        double px = svg_x(s, x[i]), py = svg_y(s, y[i]);
        if (k && k + 1 < n && fabs(px - lx) < 0.5 && fabs(py - ly) < 0.5)
            continue;
        fprintf(s->f, "%c%.1f %.1f", k ? 'L' : first, px, py);
        lx = px;
        ly = py;
    }
}

void svg_line(struct svg *s, const double *x, const double *y, size_t n, const char *class)
{
    if (!n)
        return;
    fprintf(s->f, "<path class=\"line %s\" d=\"", class);
    path_points(s, x, y, n, 'M', false);
    fputs("\"/>\n", s->f);
}

void svg_area(struct svg *s, const double *x, const double *lo, const double *hi, size_t n, const char *class)
{
    if (!n)
        return;
    fprintf(s->f, "<path class=\"area %s\" d=\"", class);
    path_points(s, x, hi, n, 'M', false);
    path_points(s, x, lo, n, 'L', true);
    fputs("Z\"/>\n", s->f);
}

void svg_dot(struct svg *s, double x, double y, const char *class, const char *hover)
{
    fprintf(s->f, "<circle class=\"dot %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\">", class, svg_x(s, x), svg_y(s, y));
    if (hover) {
        fputs("<title>", s->f);
        svg_escape(s->f, hover, 0);
        fputs("</title>", s->f);
    }
    fputs("</circle>\n", s->f);
}

void svg_mark(struct svg *s, double x, double lane, bool label_left, const char *label, size_t max)
{
    double px = svg_x(s, x), y = s->top - 30 - lane * SVG_LANE;
    fprintf(s->f, "<path class=\"mark\" d=\"M%.1f %.1fV%.1f\"/>\n", px, s->bottom, y - 8);
    fprintf(s->f, "<text x=\"%.1f\" y=\"%.1f\" class=\"marktext%s\">", px + (label_left ? -5 : 5), y,
            label_left ? " end" : "");
    svg_escape(s->f, label, max);
    fputs("</text>\n", s->f);
}

void svg_badge(struct svg *s, double x, double lane, size_t number)
{
    double px = svg_x(s, x), y = s->top - 34 - lane * SVG_LANE;
    fprintf(s->f, "<path class=\"mark\" d=\"M%.1f %.1fV%.1f\"/>\n", px, s->bottom, y);
    fprintf(s->f, "<rect class=\"badge\" x=\"%.1f\" y=\"%.1f\" width=\"%.0f\" height=\"16\" rx=\"8\"/>",
            px - SVG_BADGE / 2, y - 8, SVG_BADGE);
    fprintf(s->f, "<text class=\"mid badgetext\" x=\"%.1f\" y=\"%.1f\">%zu</text>\n", px, y + 4, number);
}
