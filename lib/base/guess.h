/* SPDX-License-Identifier: Apache-2.0 */
/* Guesses which of several names the user meant with an unknown word. */
#ifndef HW_GUESS_H
#define HW_GUESS_H

#include <stddef.h>

/* Initialise with {.word = word} and pass each name to hw_guess(); near is then the nearest name, or NULL if none is
 * close enough. */
struct hw_guess {
    const char *word, *near;
    size_t edits; /* edits from word to near: letters inserted, left out, replaced or swapped with their neighbour; 0 if
                     near begins with word */
};

/* Considers one candidate name. Ignores case and treats '-' as '_'. A name is near if edits to at most a third of the
 * word's letters, and at most three, turn the word into the name, or if the name begins with the word. candidate must
 * live as long as *g. */
void hw_guess(struct hw_guess *g, const char *candidate);

#endif
