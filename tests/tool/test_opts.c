/* SPDX-License-Identifier: Apache-2.0 */
/* Tests opts_parse(): each type of value and its range, groups, positional arguments, and exit status 2 for invalid
 * arguments. Also tests hw_guess(). */
#include "tests/tap.h"
#include "tool/opts.h"

#include <stdlib.h>
#include <string.h>

struct inner {
    const char *text;
    int times;
};

struct args {
    bool flag;
    unsigned few;
    uint64_t many, bytes, ms;
    const char *word;
    enum { FIRST = 3, SECOND } choice;
    struct inner inner;
    char called[16];
};

static int parse_called(void *args, const char *text)
{
    struct args *a = args;
    snprintf(a->called, sizeof a->called, "%s", text);
    return strcmp(text, "bad") == 0 ? hw_fail(-EINVAL, "it is bad") : 0;
}

static const char *const words[] = {"one", "two", NULL};
static const struct opt inner_rows[] = {
    OPT_TEXT("text", 't', "TEXT", struct inner, text, "a text"),
    OPT_COUNT("times", 'v', struct inner, times, "more"),
    {0},
};
static const struct opt rows[] = {
    OPT_FLAG("flag", 'f', struct args, flag, "a flag"),
    OPT_NUMBER("few", 0, "N", struct args, few, 1, 9, "unsigned"),
    OPT_NUMBER("many", 'n', "N", struct args, many, 0, UINT64_MAX, "uint64_t"),
    OPT_SIZE("bytes", 0, "SIZE", struct args, bytes, 4096, 1 << 20, "a size"),
    OPT_TIME("ms", 0, "TIME", struct args, ms, 10, 60000, "a time"),
    OPT_WORD("word", 0, "WORD", struct args, word, words, "a word"),
    OPT_ENUM("choice", 0, "WORD", struct args, choice, words, FIRST, "an enum"),
    OPT_CALL("called", 0, "X", parse_called, "a function"),
    OPT_GROUP(inner_rows, struct args, inner),
    {0},
};
static const struct opts table = {.cmd = "test",
                                  .args = "[OPTION...] X",
                                  .about = "A test.",
                                  .rows = rows,
                                  .least = 1,
                                  .most = 1,
                                  .too_few = "which X?"};

/* Splits a line at spaces and parses the words. */
static int parse_line(struct args *a, const char *line)
{
    static char buf[256];
    char *argv[32] = {(char *)"test"}, *rest = buf, *one;
    int argc = 1;
    *a = (struct args){0};
    snprintf(buf, sizeof buf, "%s", line);
    while ((one = strsep(&rest, " ")) != NULL)
        argv[argc++] = one;
    return opts_parse(&table, a, argc, argv);
}

int main(void)
{
    struct args a;
    is_int(parse_line(&a, "x -f --few 9 -n 18446744073709551615 --bytes 4KiB --ms 1m"), OPTS_GO, "each is read");
    ok(a.flag && a.few == 9 && a.many == UINT64_MAX && a.bytes == 4096 && a.ms == 60000, "flag, numbers, size, time");
    is_int(parse_line(&a, "--word two --choice=two --called it -t here -vv --times x"), OPTS_GO, "words and a group");
    ok(strcmp(a.word, "two") == 0 && a.choice == SECOND && strcmp(a.called, "it") == 0, "word, enum, function");
    ok(strcmp(a.inner.text, "here") == 0 && a.inner.times == 3, "a group's go to its own struct");
    static const char *const wrong[] = {"--few 0 x",      "--few 10 x",     "--few -1 x", "--bytes 4095 x",
                                        "--bytes 2MiB x", "--ms 9ms x",     "--ms 61s x", "--word three x",
                                        "--choice on x",  "--called bad x", "--flag=1 x", "--text",
                                        "--nope x",       "-q x",           "-f",         "x y",
                                        "--bytes 12Q x"};
    for (size_t i = 0; i < HW_ARRAY_LEN(wrong); i++)
        is_int(parse_line(&a, wrong[i]), TOOL_USAGE, wrong[i]);
    struct hw_guess g = {.word = "chnnels"};
    hw_guess(&g, "chunk");
    hw_guess(&g, "channels");
    ok(g.near && strcmp(g.near, "channels") == 0, "the nearest is guessed");
    g = (struct hw_guess){.word = "xyz"};
    hw_guess(&g, "channels");
    ok(!g.near, "nothing near: no guess");
    static const char *const guess[][3] = {{"ls", "up", NULL},
                                           {"ls", "list", NULL},
                                           {"sevre", "serve", "serve"},
                                           {"val", "validate", "validate"},
                                           {"vl", "validate", NULL},
                                           {"dwn", "down", "down"},
                                           {"frobnicate", "splice", NULL}};
    for (size_t i = 0; i < HW_ARRAY_LEN(guess); i++) {
        g = (struct hw_guess){.word = guess[i][0]};
        hw_guess(&g, guess[i][1]);
        ok((g.near != NULL) == (guess[i][2] != NULL), "%s for %s: %s", guess[i][1], guess[i][0],
           guess[i][2] ? "near" : "no");
    }
    return tap_done();
}
