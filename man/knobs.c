/* SPDX-License-Identifier: Apache-2.0 */
/* Prints hawser.7 as scdoc from the table of knobs, so that the page always matches the library. */
#include "hawser.h"

#include <stdio.h>

/* Prints s with escapes, because scdoc reads _ and * as emphasis and \ as an escape. */
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
    puts("hawser(7)\n\n"
         "# NAME\n\n"
         "hawser - knobs of libhawser\n\n"
         "# DESCRIPTION\n\n"
         "Every knob has a default. The knob's environment variable overrides the default, and a *name*=_value_ string "
         "overrides both. A program passes these strings in *hawser\\_options.knobs* (see *hawser*(3)), and the "
         "program *hawser* accepts *--knob* _NAME=VALUE_ (see *hawser*(1)). An invalid value is an error, and the "
         "message contains the knob and its bounds or its possible values. A removed knob is an error, and the "
         "message says what replaces the knob.\n\n"
         "Sizes accept K, M, G, T and KiB, MiB, GiB, TiB (powers of 1024), or KB, MB, GB, TB (powers of 1000).\n\n"
         "*hawser help knobs* prints the same table.\n\n"
         "# KNOBS\n");
    hawser_knobs(knob, NULL);
    puts("# SEE ALSO\n\n"
         "*hawser*(1), *hawser*(3)");
    return fflush(stdout) != 0 || ferror(stdout);
}
