/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the text that a context gives (lib/context/metrics.h). The text may be any process's: only the families of
 * hw_metrics[] are taken, labels become printable ASCII, values are whole numbers or decimal fractions of limited
 * length. So what was read can be shown on a terminal and passed on to Prometheus.
 */
#ifndef HW_TOOL_PROM_H
#define HW_TOOL_PROM_H

#include "base/metric.h"

#define PROM_LABELS  4     /* of a family at most */
#define PROM_LABEL   64    /* bytes of a value, with the 0; the rest is cut */
#define PROM_VALUE   40    /* bytes of a number, with the 0 */
#define PROM_SAMPLES 16384 /* of a text */
#define PROM_TEXT    (4ul << 20)

struct prom_sample {
    enum hw_metric metric;
    char label[PROM_LABELS][PROM_LABEL]; /* in the order of hw_metrics[].labels; "" where the text has none */
    char text[PROM_VALUE];               /* the number as it was written */
    double value;
};

struct prom {
    struct prom_sample *sample;
    size_t n, room;
    size_t unknown; /* samples of families that this build does not know */
};

/* Reads len bytes of text. 0; -EPROTO: this is not such a text, or it was cut; -E2BIG: more than PROM_SAMPLES; -ENOMEM.
 * prom_free() is needed either way. */
int prom_parse(const char *text, size_t len, struct prom *p);
void prom_free(struct prom *p);
/* The k-th label's name of a family into buf, "" past the last. */
void prom_label_name(enum hw_metric m, unsigned k, char *buf, size_t cap);

#endif
