/* SPDX-License-Identifier: Apache-2.0 */
/* Guesses the name that the user meant by an unknown word. */
#ifndef HW_GUESS_H
#define HW_GUESS_H

#include <stddef.h>

/* Initialize this structure with {.word = word} and pass each name to hw_guess(). near is then the nearest name, or
 * NULL if no name is close enough. */
struct hw_guess {
    const char *word, *near;
    size_t edits; /* number of edits from word to near: letters inserted, removed, replaced or swapped with the next
                     letter; 0 if near begins with word and word has three letters or more */
};

/* Considers one candidate name. Ignores case. A name is close enough if it begins with the word and the word has at
 * least three letters, or if at most three edits, and at most one per three letters of the word (rounded up), turn the
 * word into the name ('-' counts as '_'). candidate must remain valid as long as *g is used. */
void hw_guess(struct hw_guess *g, const char *candidate);

#endif
