/* SPDX-License-Identifier: Apache-2.0 */
/* Prints hawser.7 as scdoc, made of the knob table, so that the page cannot drift from the library. */
#include "hawser.h"

#include <stdio.h>

/* scdoc reads _ and * as emphasis, \ as an escape, wherever they stand. */
static void text(const char *s)
{
    for (; *s; s++) {
        if (*s == '_' || *s == '*' || *s == '\\')
            putchar('\\');
        putchar(*s);
    }
}

static void knob(void *arg, const char *name, const char *env, const char *def, const char *unit, const char *doc)
{
    (void)arg;
    printf("*");
    text(name);
    printf("*, *");
    text(env);
    printf("* (");
    text(unit);
    printf(")\n\t");
    text(doc);
    printf(".");
    if (*def) {
        printf(" Default: ");
        text(def);
        printf(".");
    }
    printf("\n\n");
}

int main(void)
{
    puts(
        "hawser(7)\n\n"
        "# NAME\n\n"
        "hawser - the knobs of libhawser\n\n"
        "# DESCRIPTION\n\n"
        "Every knob has a default, which is overridden by its environment variable, which is overridden by "
        "*name*=_value_ strings: *hawser\\_options.knobs* in a program (see *hawser*(3)), *--knob* _NAME=VALUE_ of the "
        "tool (see *hawser*(1)). A value that cannot be read, or lies outside a knob's bounds, is an error that names "
        "the knob, its bounds and its unit; it is never rounded or ignored. A knob that an earlier version "
        "had is an error that says what there is instead.\n\n"
        "Sizes take K, M, G, T and KiB, MiB, GiB, TiB (powers of 1024), or KB, MB, GB, TB (powers of 1000).\n\n"
        "*hawser help knobs* prints the same table.\n\n"
        "# KNOBS\n");
    hawser_knobs(knob, NULL);
    puts("# SEE ALSO\n\n"
         "*hawser*(1), *hawser*(3)");
    return fflush(stdout) != 0 || ferror(stdout);
}
