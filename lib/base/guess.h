/* SPDX-License-Identifier: Apache-2.0 */
/* Which of several names was meant by a word that is none of them. */
#ifndef HW_GUESS_H
#define HW_GUESS_H

#include <stddef.h>

/* Start with {.word = word} and give each name; near is the nearest, or NULL where none is near enough to help. */
struct hw_guess {
    const char *word, *near;
    size_t edits; /* from word to near: letters inserted, left out, replaced or swapped with their neighbour; 0 where
                   * near begins with word */
};

/* Case does not count, and '-' is '_'. Near are names that a third of the word's letters, three at most, turn it into,
 * and names that begin with it. candidate must live as long as *g. */
void hw_guess(struct hw_guess *g, const char *candidate);

#endif
