/* SPDX-License-Identifier: Apache-2.0 */
#include "base/guess.h"

#include "base/base.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#define LONGEST 48 /* longest word or name whose edits are counted */
#define MOST    3u
#define BEGUN   3 /* minimum number of letters of a word that counts as the beginning of a name */

static char fold_letter(char c)
{
    return (char)(c == '-' ? '_' : c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

/* Returns the number of edits that turn a into b, or SIZE_MAX if one of them is longer than LONGEST. */
static size_t count_edits(const char *a, const char *b)
{
    const size_t la = strlen(a), lb = strlen(b);
    size_t row[3][LONGEST + 1]; /* rows for the two previous letters and the current letter */
    if (la > LONGEST || lb > LONGEST)
        return SIZE_MAX;
    for (size_t j = 0; j <= lb; j++)
        row[1][j] = j;
    for (size_t i = 1; i <= la; i++) {
        row[2][0] = i;
        for (size_t j = 1; j <= lb; j++) {
            const char x = fold_letter(a[i - 1]), y = fold_letter(b[j - 1]);
            size_t best = HW_MIN(row[1][j], row[2][j - 1]) + 1;
            best = HW_MIN(best, row[1][j - 1] + (x != y));
            if (i > 1 && j > 1 && x == fold_letter(b[j - 2]) && y == fold_letter(a[i - 2]))
                best = HW_MIN(best, row[0][j - 2] + 1);
            row[2][j] = best;
        }
        memmove(row[0], row[1], 2 * sizeof row[0]);
    }
    return row[1][lb];
}

void hw_guess(struct hw_guess *g, const char *candidate)
{
    const size_t len = strlen(g->word), most = HW_MIN((len + 2) / 3, MOST);
    size_t edits = count_edits(g->word, candidate);
    if (len >= BEGUN && strncasecmp(g->word, candidate, len) == 0)
        edits = 0; /* the user left out the rest of the name */
    if (edits <= most && (!g->near || edits < g->edits)) {
        g->edits = edits;
        g->near = candidate;
    }
}
