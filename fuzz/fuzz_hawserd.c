/* SPDX-License-Identifier: Apache-2.0 */
/* The files that hawserd reads: the journal and the policy. The first byte selects the file. An accepted journal is
 * unchanged after it is written and read back, and an accepted policy is within its bounds. A refusal sets an error
 * text. */
#include "fuzz.h"
#include "helper/state/state.h"

#include <stdlib.h>

static void policy(const char *text)
{
    static struct hd_policy p;
    int rc = hd_policy_parse(&p, text, "policy");
    FUZZ_CHECK(rc == 0 || *hw_error());
    if (rc < 0)
        return;
    FUZZ_CHECK(p.n <= HD_SECTIONS_MAX);
    for (unsigned i = 0; i < p.n; i++) {
        FUZZ_CHECK(p.section[i].nics[0] && memchr(p.section[i].who, 0, sizeof(p.section[i].who)));
        (void)hd_policy_nic(&p.section[i], "eth0");
    }
}

static char *again(struct hd_state *s, const char *text, size_t n, size_t *len)
{
    int rc = hd_journal_parse(s, text, n);
    FUZZ_CHECK(rc == 0 || *hw_error());
    char *out = rc == 0 ? hd_journal_text(s, len) : NULL;
    FUZZ_CHECK(rc < 0 || out);
    return out;
}

static void journal(const char *text, size_t n)
{
    struct hd_state a, b;
    size_t len, more;
    hd_state_init(&a, NULL, NULL, NULL);
    hd_state_init(&b, NULL, NULL, NULL);
    a.netns = b.netns = 1;
    strcpy(a.boot, "0");
    strcpy(b.boot, "0");
    char *first = again(&a, text, n, &len);
    if (first) {
        char *second = again(&b, first, len, &more);
        FUZZ_CHECK(second && more == len && memcmp(first, second, len) == 0);
        FUZZ_CHECK(a.n_nics == b.n_nics && a.n_nics <= HD_NICS_MAX);
        free(second);
        free(first);
    }
    hd_state_free(&a);
    hd_state_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    char *text = malloc(size);
    if (!text)
        abort();
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    hw_fail(0, "%s", "");
    if (data[0] == 'j')
        journal(text, size - 1);
    else
        policy(text);
    free(text);
    return 0;
}
