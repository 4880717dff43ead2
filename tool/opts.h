/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of a subcommand from one typed table: opts_parse() reads the command line by it into the command's own
 * struct, prints --help from it, and says of a wrong one which option it is, what it was given, and what is allowed.
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
    OPT_IS_FLAG = 1, /* bool: true */
    OPT_IS_COUNT,    /* int: incremented at each use */
    OPT_IS_NUMBER,   /* unsigned or uint64_t, from min to max */
    OPT_IS_SIZE,     /* uint64_t, bytes, from min to max */
    OPT_IS_TIME,     /* uint64_t, milliseconds, from min to max */
    OPT_IS_TEXT,     /* const char *: the argument itself */
    OPT_IS_WORD,     /* const char *: one of words */
    OPT_IS_ENUM,     /* an enum: the index in words of the given one, from min on */
    OPT_IS_CALL,     /* parse() decides */
    OPT_IS_GROUP,    /* the rows of another table, for a struct embedded in this one */
};

struct opt {
    const char *name; /* "size": --size */
    enum opt_type type;
    char letter;       /* 0: none */
    const char *value; /* the value's name, NULL if it takes none */
    const char *help;  /* NULL: not shown */
    size_t at, len;    /* of the field */
    uint64_t min, max;
    const char *const *words; /* ends with NULL */
    /* args: the struct of the table that has the row. text: NULL if the option takes no value. 0, or -errno. */
    int (*parse)(void *args, const char *text);
    const struct opt *rows; /* a group's */
};

/* Offset of field F of struct S, which must have type T. */
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
/* A group whose fields are in the table's own struct. */
#define OPT_ROWS(ROWS)                                 \
    {                                                  \
        .name = "", .type = OPT_IS_GROUP, .rows = ROWS \
    }
/* NOLINTEND(bugprone-macro-parentheses) */

#define OPTS_ANY UINT32_MAX

struct opts {
    const char *cmd;        /* "bench" */
    const char *args;       /* "HOST[:PORT] [OPTION...]" */
    const char *about;      /* a few lines under the usage line */
    const struct opt *rows; /* end with {0} */
    unsigned least, most;   /* positional arguments; OPTS_ANY: no limit */
    const char *too_few;    /* the message if there are too few */
    const char *too_many;   /* "'x' is one argument too many; <this>"; NULL: nothing after that */
    bool stops;             /* options end at the first positional argument */
};

enum { OPTS_GO = -1 };
/* Parses the command line into *args. Returns OPTS_GO, with the positional arguments from argv[optind] on; or the exit
 * status after printing help to stdout, or the fault to stderr. */
int opts_parse(const struct opts *o, void *args, int argc, char **argv);

/* The options shared by serve, bench, validate and doctor, for struct common. */
extern const struct opt common_opts[];

#endif
