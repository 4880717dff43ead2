/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/bugreport/mask.h"

#include "base/base.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST    256 /* number of distinct addresses; further addresses share the last number */
#define LONGEST INET6_ADDRSTRLEN
#define WORDS   16

struct mask {
    char seen[MOST][LONGEST];
    size_t n;
    struct {
        const char *word, *becomes;
    } word[WORDS];
    size_t n_words;
};

struct mask *mask_new(void)
{
    return calloc(1, sizeof(struct mask));
}

void mask_free(struct mask *m)
{
    free(m);
}

void mask_word(struct mask *m, const char *word, const char *becomes)
{
    if (word && *word && m->n_words < WORDS) {
        m->word[m->n_words].word = word;
        m->word[m->n_words++].becomes = becomes;
    }
}

static bool is_address_letter(char c)
{
    return isxdigit((unsigned char)c) || c == ':' || c == '.';
}

/* Returns true if the text has the form aa:bb:cc:dd:ee:ff. */
static bool is_mac(const char *s)
{
    size_t i = 0;
    for (; s[i]; i++)
        if (i % 3 == 2 ? s[i] != ':' : !isxdigit((unsigned char)s[i]))
            return false;
    return i == 17;
}

static bool is_address(const char *s)
{
    struct in6_addr a;
    if (strcmp(s, "0.0.0.0") == 0 || strncmp(s, "127.", 4) == 0 || strcmp(s, "::1") == 0 || strcmp(s, "::") == 0)
        return false;
    return inet_pton(AF_INET, s, &a) == 1 || inet_pton(AF_INET6, s, &a) == 1 || is_mac(s);
}

static size_t number_address(struct mask *m, const char *s)
{
    size_t i = 0;
    while (i < m->n && strcmp(m->seen[i], s) != 0)
        i++;
    if (i == m->n && m->n < MOST)
        snprintf(m->seen[m->n++], LONGEST, "%s", s);
    return HW_MIN(i + 1, (size_t)MOST);
}

/* Returns the length of the longest address at the start of a run of len characters, or 0 if there is none. A port
 * or a full stop may follow the address. */
static size_t find_address(const char *at, size_t len)
{
    for (size_t n = HW_MIN(len, (size_t)LONGEST - 1); n >= 2; n--) {
        char word[LONGEST];
        if (n < len && at[n] != ':' && at[n] != '.')
            continue;
        snprintf(word, sizeof word, "%.*s", (int)n, at);
        if (is_address(word))
            return n;
    }
    return 0;
}

static bool is_word_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

/* Returns the length of the word at `at`, including any domain name that follows it, or 0 if the word does not occur
 * there or is only part of a longer word. */
static size_t match_word(const char *text, const char *at, const char *word)
{
    size_t len = strlen(word);
    if (strncmp(at, word, len) != 0 || is_word_letter(at[len]) || (at != text && is_word_letter(at[-1])))
        return 0;
    while (at[len] == '.' && isalnum((unsigned char)at[len + 1]))
        for (len++; is_word_letter(at[len]);)
            len++;
    return len;
}

/* Writes the replacement of a word at `at`, if there is one. Returns the number of replaced characters, or 0 if there
 * is no word. */
static size_t put_word(const struct mask *m, const char *text, const char *at, FILE *f)
{
    for (size_t i = 0; i < m->n_words; i++) {
        const size_t len = match_word(text, at, m->word[i].word);
        if (len) {
            fputs(m->word[i].becomes, f);
            return len;
        }
    }
    return 0;
}

/* Returns the length of a NIC name at `at` that contains a MAC address, such as udev's enx001122334455, or 0 if
 * there is none. */
static size_t find_mac_name(const char *at)
{
    size_t n = 3;
    if (strncmp(at, "enx", 3) != 0 && strncmp(at, "wlx", 3) != 0)
        return 0;
    while (n < 16 && isxdigit((unsigned char)at[n]))
        n++;
    return n == 15 && !is_word_letter(at[n]) ? n : 0;
}

/* If an address begins at `at`, and `at` is not within a word, writes the replacement of the address. Returns the
 * number of replaced characters, or 0 if there is no address. */
static size_t put_address(struct mask *m, const char *text, const char *at, FILE *f)
{
    char word[LONGEST];
    size_t run = 0;
    if (at != text && (isalnum((unsigned char)at[-1]) || at[-1] == '.' || at[-1] == ':'))
        return 0;
    while (is_address_letter(at[run]))
        run++;
    size_t n = run ? find_address(at, run) : 0;
    if (!n)
        n = find_mac_name(at);
    if (n) {
        snprintf(word, sizeof word, "%.*s", (int)n, at);
        fprintf(f, "<address-%zu>", number_address(m, word));
    }
    return n;
}

char *mask_text(struct mask *m, const char *text)
{
    char *out = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&out, &len);
    if (!f)
        return NULL;
    for (const char *at = text; *at;) {
        size_t n = put_word(m, text, at, f);
        if (!n)
            n = put_address(m, text, at, f);
        if (!n)
            fputc(*at, f);
        at += n ? n : 1;
    }
    if (fclose(f) != 0) {
        free(out);
        return NULL;
    }
    return out;
}

char *mask_addresses(const char *text, const char *host)
{
    struct mask *m = mask_new();
    char *out = NULL;
    if (m) {
        mask_word(m, host, "<host>");
        out = mask_text(m, text);
    }
    mask_free(m);
    return out;
}
