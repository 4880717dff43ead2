/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses the text that a context writes (lib/context/metrics.h). The text may come from any process, so only samples of
 * the metric families of hw_metrics[] are kept. Labels are converted to printable ASCII, and values are whole numbers
 * or decimal fractions of limited length. The result can therefore be shown on a terminal and passed on to Prometheus.
 */
#ifndef HW_TOOL_PROM_H
#define HW_TOOL_PROM_H

#include "base/metric.h"

#define PROM_LABELS  4     /* maximum number of labels of a metric family */
#define PROM_LABEL   64    /* bytes of a label's value, including the NUL; longer values are truncated */
#define PROM_VALUE   40    /* bytes of a number, including the NUL */
#define PROM_SAMPLES 16384 /* maximum samples of a text */
#define PROM_TEXT    (4ul << 20)

struct prom_sample {
    enum hw_metric metric;
    char label[PROM_LABELS][PROM_LABEL]; /* in the order of hw_metrics[].labels; "" if the text lacks the label */
    char text[PROM_VALUE];               /* the number as written */
    double value;
};

struct prom {
    struct prom_sample *sample;
    size_t n, room;
    size_t unknown; /* samples of metric families that this build does not support */
};

/* Parses len bytes of text. Returns 0. Fails with -EPROTO if the text is invalid or truncated, with -E2BIG if it is too
 * long or has more than PROM_SAMPLES samples, and with -ENOMEM. The caller calls prom_free() in any case. */
int prom_parse(const char *text, size_t len, struct prom *p);
void prom_free(struct prom *p);
/* Writes the name of the metric family's k-th label to buf, or "" if the family has fewer labels. */
void prom_label_name(enum hw_metric m, unsigned k, char *buf, size_t cap);

#endif
