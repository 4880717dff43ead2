/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses the text that a context writes (lib/context/metrics.h). The text may come from any process: only the families
 * of hw_metrics[] are accepted, labels become printable ASCII, values are whole numbers or decimal fractions of limited
 * length. So the result can be shown on a terminal and passed on to Prometheus.
 */
#ifndef HW_TOOL_PROM_H
#define HW_TOOL_PROM_H

#include "base/metric.h"

#define PROM_LABELS  4     /* most labels of a family */
#define PROM_LABEL   64    /* bytes of a value, including the 0; longer ones are cut */
#define PROM_VALUE   40    /* bytes of a number, including the 0 */
#define PROM_SAMPLES 16384 /* of a text */
#define PROM_TEXT    (4ul << 20)

struct prom_sample {
    enum hw_metric metric;
    char label[PROM_LABELS][PROM_LABEL]; /* in the order of hw_metrics[].labels; "" if the text lacks it */
    char text[PROM_VALUE];               /* the number as written */
    double value;
};

struct prom {
    struct prom_sample *sample;
    size_t n, room;
    size_t unknown; /* samples of families that this build does not know */
};

/* Parses len bytes of text. 0; -EPROTO: not such a text, or truncated; -E2BIG: more than PROM_SAMPLES; -ENOMEM. Call
 * prom_free() in any case. */
int prom_parse(const char *text, size_t len, struct prom *p);
void prom_free(struct prom *p);
/* Writes the name of a family's k-th label to buf, "" past the last. */
void prom_label_name(enum hw_metric m, unsigned k, char *buf, size_t cap);

#endif
