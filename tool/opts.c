/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/opts.h"

#include "base/size.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OPTS_MAX  64
#define FIRST_ID  256 /* getopt_long() value of row 0, larger than any letter */
#define HELP_LEFT 28

/* All rows, including those of groups. */
struct flat {
    size_t n;
    struct {
        const struct opt *opt;
        char *args; /* struct that contains the row's field */
    } row[OPTS_MAX];
};

static void flatten_rows(struct flat *f, const struct opt *rows, char *args)
{
    for (const struct opt *p = rows; p->name; p++) {
        if (p->type == OPT_IS_GROUP) {
            flatten_rows(f, p->rows, args + p->at);
        } else if (f->n == OPTS_MAX) {
            abort(); /* OPTS_MAX is too small for the table: a bug */
        } else {
            f->row[f->n].opt = p;
            f->row[f->n++].args = args;
        }
    }
}

/* ---- help ----------------------------------------------------------------------------------------- */

static void print_options_help(const struct opts *o, const struct flat *f)
{
    const unsigned column = 2 + HELP_LEFT + 1;
    printf("Usage: hawser %s %s\n\n", o->cmd, o->args);
    tool_print_wrapped(stdout, 0, 0, o->about);
    printf("\nOptions:\n");
    for (size_t i = 0; i < f->n; i++) {
        const struct opt *p = f->row[i].opt;
        char left[64];
        if (!p->help)
            continue;
        snprintf(left, sizeof left, "%c%c%s --%s%s%s", p->letter ? '-' : ' ', p->letter ? p->letter : ' ',
                 p->letter ? "," : " ", p->name, p->value ? " " : "", p->value ? p->value : "");
        const int n = printf("  %-*s ", HELP_LEFT, left);
        tool_print_wrapped(stdout, (unsigned)HW_MAX(n, 0), column, p->help);
    }
    printf("  %-*s %s\n", HELP_LEFT, "-h, --help", "show this help");
}

/* ---- values --------------------------------------------------------------------------------------- */

/* Formats the words as in "auto, yes or no". */
static const char *list_words(const char *const *words, char *buf, size_t cap)
{
    buf[0] = 0;
    for (size_t i = 0; words[i]; i++) {
        size_t at = strlen(buf);
        snprintf(buf + at, cap - at, "%s%s", i == 0 ? "" : words[i + 1] ? ", " : " or ", words[i]);
    }
    return buf;
}

static int find_word(const struct opt *p, const char *text, size_t *out)
{
    struct hw_guess g = {.word = text};
    char all[256];
    for (size_t i = 0; p->words[i]; i++) {
        if (strcmp(p->words[i], text) == 0) {
            *out = i;
            return 0;
        }
        hw_guess(&g, p->words[i]);
    }
    list_words(p->words, all, sizeof all);
    if (g.near)
        return hw_fail(-EINVAL, "--%s takes %s, not '%s'; did you mean '%s'?", p->name, all, text, g.near);
    return hw_fail(-EINVAL, "--%s takes %s, not '%s'", p->name, all, text);
}

static char *format_time(uint64_t ms, char *buf, size_t cap)
{
    if (ms % 60000 == 0)
        snprintf(buf, cap, "%" PRIu64 "m", ms / 60000);
    else if (ms % 1000 == 0)
        snprintf(buf, cap, "%" PRIu64 "s", ms / 1000);
    else
        snprintf(buf, cap, "%" PRIu64 "ms", ms);
    return buf;
}

/* Parses a size or a time, and checks that it is in the row's range. */
static int parse_amount(const struct opt *p, const char *text, uint64_t *out)
{
    const bool size = p->type == OPT_IS_SIZE;
    uint64_t v;
    char min[32], max[32];
    int rc = size ? hw_parse_size(text, &v) : hw_parse_duration_ms(text, &v);
    if (rc < 0)
        return hw_wrap(rc, "--%s", p->name);
    if (v < p->min || v > p->max)
        return hw_fail(-EINVAL, "--%s takes %s to %s, not '%s'", p->name,
                       size ? hw_format_size(p->min, min, sizeof min) : format_time(p->min, min, sizeof min),
                       size ? hw_format_size(p->max, max, sizeof max) : format_time(p->max, max, sizeof max), text);
    *out = v;
    return 0;
}

static int take_value(const struct opt *p, char *args, const char *text)
{
    void *field = args + p->at;
    uint64_t v = 0;
    size_t word = 0;
    int rc = 0;
    switch (p->type) {
    case OPT_IS_FLAG:
        *(bool *)field = true;
        return 0;
    case OPT_IS_COUNT:
        ++*(int *)field;
        return 0;
    case OPT_IS_NUMBER:
        rc = hw_parse_u64(text, p->min, p->max, &v);
        if (rc < 0)
            return hw_wrap(rc, "--%s", p->name);
        if (p->len == sizeof(unsigned))
            *(unsigned *)field = (unsigned)v;
        else
            *(uint64_t *)field = v;
        return 0;
    case OPT_IS_SIZE:
    case OPT_IS_TIME:
        return parse_amount(p, text, field);
    case OPT_IS_TEXT:
        *(const char **)field = text;
        return 0;
    case OPT_IS_WORD:
        *(const char **)field = text;
        return find_word(p, text, &word);
    case OPT_IS_ENUM:
        rc = find_word(p, text, &word);
        if (rc == 0)
            *(unsigned *)field = (unsigned)(p->min + word);
        return rc;
    case OPT_IS_CALL:
        rc = p->parse(args, text);
        return rc < 0 ? hw_wrap(rc, "--%s", p->name) : 0;
    case OPT_IS_GROUP:
        break;
    }
    return hw_fail(-EINVAL, "reading --%s failed", p->name);
}

/* ---- the command line ----------------------------------------------------------------------------- */

static int refuse_unknown(const struct opts *o, const struct flat *f, const char *bad)
{
    char word[64];
    struct hw_guess g = {.word = word};
    snprintf(word, sizeof word, "%.*s", (int)strcspn(bad + 2, "="), bad + 2);
    size_t begin = strncmp("help", word, strlen(word)) == 0; /* number of options that begin with the word */
    hw_guess(&g, "help");
    for (size_t i = 0; i < f->n; i++) {
        begin += strncmp(f->row[i].opt->name, word, strlen(word)) == 0;
        if (f->row[i].opt->help)
            hw_guess(&g, f->row[i].opt->name);
    }
    if (begin > 1)
        return tool_usage(o->cmd, "option '%s' is ambiguous", bad);
    if (g.near)
        return tool_usage(o->cmd, "unknown option '%s'; did you mean '--%s'?", bad, g.near);
    return tool_usage(o->cmd, "unknown option '%s'", bad);
}

/* Reports an option for which getopt_long() returned '?'. optopt is the letter of an unknown short option, the
 * getopt_long() value of an option that takes no value but got one, or 0 for an unknown or ambiguous long option. */
static int refuse_option(const struct opts *o, const struct flat *f, int argc, char **argv)
{
    const char *bad = argv[HW_MIN(optind, argc) - 1];
    if (optopt >= FIRST_ID || (optopt && strncmp(bad, "--", 2) == 0))
        return tool_usage(o->cmd, "option '%s' takes no value", bad);
    if (optopt)
        return tool_usage(o->cmd, "unknown option '-%c'", optopt);
    return refuse_unknown(o, f, bad);
}

static int check_argument_count(const struct opts *o, int argc, char **argv)
{
    const unsigned n = (unsigned)(argc - optind);
    if (n < o->least)
        return tool_usage(o->cmd, "%s", o->too_few);
    if (n > o->most)
        return tool_usage(o->cmd, "unexpected argument '%s'%s%s", argv[optind + (int)o->most], o->too_many ? "; " : "",
                          o->too_many ? o->too_many : "");
    return OPTS_GO;
}

/* Returns the index of the row for which getopt_long() returned id, or f->n if there is none. */
static size_t find_row(const struct flat *f, int id)
{
    size_t i = 0;
    while (i < f->n && (id < FIRST_ID ? f->row[i].opt->letter != id : i != (size_t)(id - FIRST_ID)))
        i++;
    return i;
}

/* If word is an option that takes a value, returns the row of the option. Otherwise returns NULL. */
static const struct opt *find_pending(const struct flat *f, const char *word)
{
    for (size_t i = 0; word && word[0] == '-' && i < f->n; i++) {
        const struct opt *p = f->row[i].opt;
        if (p->value &&
            ((word[1] == '-' && strcmp(word + 2, p->name) == 0) || (p->letter && word[1] == p->letter && word[2] == 0)))
            return p;
    }
    return NULL;
}

/* Prints the candidates for the word to complete: values of the preceding option, or names of options. The shell itself
 * completes file names. */
static int complete_option(const struct flat *f)
{
    const struct opt *pending = find_pending(f, tool_completion.before);
    for (size_t i = 0; pending && pending->words && pending->words[i]; i++)
        tool_complete("", pending->words[i], "");
    if (pending || tool_completion.word[0] != '-')
        return TOOL_OK;
    for (size_t i = 0; i < f->n; i++)
        if (f->row[i].opt->help)
            tool_complete("--", f->row[i].opt->name, f->row[i].opt->help);
    tool_complete("--", "help", "show this help");
    return TOOL_OK;
}

int opts_parse(const struct opts *o, void *args, int argc, char **argv)
{
    struct flat f = {0};
    struct option lng[OPTS_MAX + 2];
    char shrt[2 * OPTS_MAX + 4];
    size_t s = 0;
    flatten_rows(&f, o->rows, args);
    if (tool_completion.word)
        return complete_option(&f);
    if (o->stops)
        shrt[s++] = '+';
    shrt[s++] = ':'; /* makes getopt_long() distinguish a missing value from an unknown option */
    for (size_t i = 0; i < f.n; i++) {
        const struct opt *p = f.row[i].opt;
        lng[i] = (struct option){p->name, p->value ? required_argument : no_argument, NULL, FIRST_ID + (int)i};
        if (p->letter)
            shrt[s++] = p->letter;
        if (p->letter && p->value)
            shrt[s++] = ':';
    }
    lng[f.n] = (struct option){"help", no_argument, NULL, 'h'};
    lng[f.n + 1] = (struct option){0};
    shrt[s++] = 'h';
    shrt[s] = 0;
    optind = 0; /* makes glibc also reset its hidden state */
    opterr = 0;
    for (int id; (id = getopt_long(argc, argv, shrt, lng, NULL)) != -1;) {
        if (id == 'h') {
            print_options_help(o, &f);
            return TOOL_OK;
        }
        if (id == ':')
            return tool_usage(o->cmd, "option '%s' needs a value", argv[optind - 1]);
        size_t i = find_row(&f, id);
        if (id == '?' || i == f.n)
            return refuse_option(o, &f, argc, argv);
        if (take_value(f.row[i].opt, f.row[i].args, optarg) < 0)
            return tool_usage(o->cmd, "%s", hw_error());
    }
    return check_argument_count(o, argc, argv);
}

/* ---- options shared by several subcommands -------------------------------------------------------- */

static int parse_knob(void *args, const char *text)
{
    if (!strchr(text, '=') || text[0] == '=')
        return hw_fail(-EINVAL, "must be NAME=VALUE, not '%s'", text);
    return common_knob(args, text, NULL);
}

static int parse_transport(void *args, const char *text)
{
    return common_knob(args, "transport", text);
}

static int parse_require_direct(void *args, const char *text)
{
    (void)text;
    return common_knob(args, "require_direct", "yes");
}

static int parse_require_devmem(void *args, const char *text)
{
    int rc = common_knob(args, "transport", "devmem");
    return rc < 0 ? rc : parse_require_direct(args, text);
}

static int parse_rails(void *args, const char *text)
{
    return common_knob(args, "rails", text);
}

static int parse_require_nics(void *args, const char *text)
{
    return common_knob(args, "require_nics", text);
}

const struct opt common_opts[] = {
    OPT_CALL("knob", 'K', "NAME=VALUE", parse_knob,
             "set a knob of the library (see `hawser help knobs`); may be repeated"),
    OPT_TEXT("key-file", 'k', "FILE", struct common, key_file,
             "read the job key (16 to 4096 bytes, the same on both sides) from FILE"),
    OPT_CALL("transport", 0, "NAME", parse_transport,
             "transfer data with tcp, devmem, or netplugin:PLUGIN; must be the same on both sides (default: tcp)"),
    OPT_CALL("require-devmem", 0, NULL, parse_require_devmem, "same as --transport devmem --require-direct"),
    OPT_CALL("require-direct", 0, NULL, parse_require_direct,
             "fail if the NIC does not place data received for a GPU directly in GPU memory"),
    OPT_CALL("rails", 0, "MAP", parse_rails,
             "connect only NICs of the same rail: \"eth1,enp6s0;10.0.2.0/24\", or @FILE with one rail per line"),
    OPT_CALL("require-nics", 0, "N", parse_require_nics, "fail if fewer than N pairs of NICs work"),
    OPT_FLAG("insecure", 'I', struct common, insecure,
             "without a key, accept any address, not only loopback and 198.18.0.0/15"),
    OPT_COUNT("verbose", 'v', struct common, verbose,
              "print more of the library's log on standard error; may be repeated"),
    {0},
};
