/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses the options of a subcommand, driven by a typed table. opts_parse() stores the values in the command's own
 * struct and prints --help from the table.
 *
 *     static const struct opt rows[] = {
 *         OPT_TEXT("from", 'f', "FILE", struct args, from, "a snapshot of another machine"),
 *         OPT_FLAG("json", 'j', struct args, json, "print JSON"),
 *         OPT_GROUP(common_opts, struct args, common),
 *         {0},
 *     };
 */
#ifndef HW_TOOL_OPTS_H
#define HW_TOOL_OPTS_H

#include "tool/common.h"

#include <getopt.h> /* optind: where the positional arguments start after opts_parse() */
#include <stddef.h>

enum opt_type {
    OPT_IS_FLAG = 1, /* bool, set to true */
    OPT_IS_COUNT,    /* int, incremented at each use */
    OPT_IS_NUMBER,   /* unsigned or uint64_t, from min to max */
    OPT_IS_SIZE,     /* uint64_t in bytes, from min to max */
    OPT_IS_TIME,     /* uint64_t in milliseconds, from min to max */
    OPT_IS_TEXT,     /* const char *, the argument itself */
    OPT_IS_WORD,     /* const char *, one of words */
    OPT_IS_ENUM,     /* enum, min plus the argument's index in words */
    OPT_IS_CALL,     /* handled by parse() */
    OPT_IS_GROUP,    /* rows of another table, for a struct embedded in this one */
};

struct opt {
    const char *name; /* long name without dashes, such as "size" */
    enum opt_type type;
    char letter;       /* short option, or 0 for none */
    const char *value; /* placeholder for the value in --help, or NULL if the option takes no value */
    const char *help;  /* help text, or NULL to hide the option */
    size_t at, len;    /* offset and size of the field */
    uint64_t min, max;
    const char *const *words; /* terminated by NULL */
    /* args points to the struct of the table that contains the row. text is NULL if the option takes no value. Returns
     * 0 or -errno. */
    int (*parse)(void *args, const char *text);
    const struct opt *rows; /* rows of the group */
};

/* Offset of field F of struct S. Fails to compile unless F has type T. */
#define OPT_AT(S, F, T) \
    __builtin_choose_expr(__builtin_types_compatible_p(__typeof__(((S *)0)->F), T), offsetof(S, F), (void)0)
#define OPT_LEN(S, F) sizeof(((S *)0)->F)

/* NOLINTBEGIN(bugprone-macro-parentheses): the arguments are initializers, types and fields */
#define OPT_FLAG(NAME, LETTER, S, F, HELP)                                                          \
    {                                                                                               \
        .name = NAME, .type = OPT_IS_FLAG, .letter = LETTER, .help = HELP, .at = OPT_AT(S, F, bool) \
    }
#define OPT_COUNT(NAME, LETTER, S, F, HELP)                                                         \
    {                                                                                               \
        .name = NAME, .type = OPT_IS_COUNT, .letter = LETTER, .help = HELP, .at = OPT_AT(S, F, int) \
    }
#define OPT_NUMBER(NAME, LETTER, VALUE, S, F, MIN, MAX, HELP)                                                      \
    {                                                                                                              \
        .name = NAME, .type = OPT_IS_NUMBER, .letter = LETTER, .value = VALUE, .help = HELP, .at = offsetof(S, F), \
        .len = _Generic(((S *)0)->F, unsigned : 4, uint64_t : 8), .min = MIN, .max = MAX                           \
    }
#define OPT_SIZE(NAME, LETTER, VALUE, S, F, MIN, MAX, HELP)                                \
    {                                                                                      \
        .name = NAME, .type = OPT_IS_SIZE, .letter = LETTER, .value = VALUE, .help = HELP, \
        .at = OPT_AT(S, F, uint64_t), .min = MIN, .max = MAX                               \
    }
#define OPT_TIME(NAME, LETTER, VALUE, S, F, MIN, MAX, HELP)                                \
    {                                                                                      \
        .name = NAME, .type = OPT_IS_TIME, .letter = LETTER, .value = VALUE, .help = HELP, \
        .at = OPT_AT(S, F, uint64_t), .min = MIN, .max = MAX                               \
    }
#define OPT_TEXT(NAME, LETTER, VALUE, S, F, HELP)                                          \
    {                                                                                      \
        .name = NAME, .type = OPT_IS_TEXT, .letter = LETTER, .value = VALUE, .help = HELP, \
        .at = OPT_AT(S, F, const char *)                                                   \
    }
#define OPT_WORD(NAME, LETTER, VALUE, S, F, WORDS, HELP)                                   \
    {                                                                                      \
        .name = NAME, .type = OPT_IS_WORD, .letter = LETTER, .value = VALUE, .help = HELP, \
        .at = OPT_AT(S, F, const char *), .words = WORDS                                   \
    }
#define OPT_ENUM(NAME, LETTER, VALUE, S, F, WORDS, FIRST, HELP)                                                  \
    {                                                                                                            \
        .name = NAME, .type = OPT_IS_ENUM, .letter = LETTER, .value = VALUE, .help = HELP, .at = offsetof(S, F), \
        .len = OPT_LEN(S, F), .words = WORDS, .min = FIRST                                                       \
    }
#define OPT_CALL(NAME, LETTER, VALUE, PARSE, HELP)                                                        \
    {                                                                                                     \
        .name = NAME, .type = OPT_IS_CALL, .letter = LETTER, .value = VALUE, .help = HELP, .parse = PARSE \
    }
#define OPT_GROUP(ROWS, S, F)                                                \
    {                                                                        \
        .name = "", .type = OPT_IS_GROUP, .at = offsetof(S, F), .rows = ROWS \
    }
/* A group whose rows set fields of the table's own struct. */
#define OPT_ROWS(ROWS)                                 \
    {                                                  \
        .name = "", .type = OPT_IS_GROUP, .rows = ROWS \
    }
/* NOLINTEND(bugprone-macro-parentheses) */

#define OPTS_ANY UINT32_MAX

struct opts {
    const char *cmd;        /* name of the subcommand, such as "bench" */
    const char *args;       /* synopsis, such as "HOST[:PORT] [OPTION...]" */
    const char *about;      /* description, printed below the usage line */
    const struct opt *rows; /* terminated by {0} */
    unsigned least, most;   /* number of positional arguments; OPTS_ANY means no limit */
    const char *too_few;    /* message for too few arguments */
    const char *too_many;   /* text after "unexpected argument 'x'; ", or NULL for none */
    bool stops;             /* options end at the first positional argument */
};

enum { OPTS_GO = -1 };
/* Parses the command line into *args. Returns OPTS_GO, with the positional arguments starting at argv[optind].
 * Otherwise prints help or completions to stdout, or an error to stderr, and returns the exit status. */
int opts_parse(const struct opts *o, void *args, int argc, char **argv);

/* Options shared by serve, bench, validate, doctor, drill, mesh and fieldtest, which set fields of struct common. */
extern const struct opt common_opts[];

#endif
