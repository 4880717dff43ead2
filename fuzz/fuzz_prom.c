/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of a context, which may come from any process on the machine. Accepted text is printable, and has the
 * same number of samples after it is written and read again. */
#include "fuzz.h"
#include "tool/metrics/gather.h"

static bool is_plain(const char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~' || *text == '"' || *text == '\\')
            return false;
    return true;
}

static void check_sample(const struct prom_sample *s)
{
    char *end;
    FUZZ_CHECK(s->metric < HW_METRICS);
    for (unsigned k = 0; k < PROM_LABELS; k++)
        FUZZ_CHECK(memchr(s->label[k], 0, PROM_LABEL) && is_plain(s->label[k]));
    double value = strtod(s->text, &end);
    FUZZ_CHECK(*end == 0 && end > s->text && value >= 0 && s->value >= 0);
    FUZZ_CHECK(s->value <= value * 1.000001 && s->value >= value * 0.999999);
}

/* Checks that the text that gather_write() makes from p can be parsed again and has the same number of samples. */
static void pass_on(const struct prom *p)
{
    struct gather_source s = {.pid = 1, .data = *p, .state = GATHER_ANSWERED};
    struct gather g = {.source = &s, .n = 1};
    struct prom again;
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        abort();
    gather_write(f, &g);
    fputs(HW_METRICS_END, f);
    if (fclose(f) != 0)
        abort();
    FUZZ_CHECK(prom_parse(text, len, &again) == 0);
    FUZZ_CHECK(again.n == p->n);
    prom_free(&again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct prom p;
    hw_fail(0, "%s", "");
    int rc = prom_parse((const char *)data, size, &p);
    FUZZ_CHECK(rc == 0 || rc == -EPROTO || rc == -E2BIG);
    FUZZ_CHECK(rc == 0 || *hw_error());
    for (size_t i = 0; i < p.n; i++)
        check_sample(&p.sample[i]);
    if (rc == 0 && p.n < 1000)
        pass_on(&p);
    prom_free(&p);
    return 0;
}
