/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/bugreport/mask.h"

#include "base/base.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST    256 /* different addresses; more share the last number */
#define LONGEST INET6_ADDRSTRLEN

struct mask {
    char seen[MOST][LONGEST];
    size_t n;
};

static bool is_address_letter(char c)
{
    return isxdigit((unsigned char)c) || c == ':' || c == '.';
}

/* aa:bb:cc:dd:ee:ff */
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

/* The longest address that the run of len letters begins with; 0: none. A port or a full stop may stand behind it. */
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

/* Does host stand there, as a word of its own? */
static bool is_host(const char *text, const char *at, const char *host, size_t len)
{
    return len && strncmp(at, host, len) == 0 && !is_word_letter(at[len]) && (at == text || !is_word_letter(at[-1]));
}

char *mask_addresses(const char *text, const char *host)
{
    char *out = NULL;
    size_t len = 0;
    const size_t host_len = host ? strlen(host) : 0;
    HW_AUTO_FREE struct mask *m = calloc(1, sizeof *m);
    FILE *f = m ? open_memstream(&out, &len) : NULL;
    if (!f)
        return NULL;
    for (const char *at = text; *at;) {
        if (is_host(text, at, host, host_len)) {
            fputs("<host>", f);
            at += host_len;
            continue;
        }
        const bool begins = at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '.' || at[-1] == ':');
        size_t run = 0;
        while (begins && is_address_letter(at[run]))
            run++;
        const size_t n = run ? find_address(at, run) : 0;
        if (n) {
            char word[LONGEST];
            snprintf(word, sizeof word, "%.*s", (int)n, at);
            fprintf(f, "<address-%zu>", number_address(m, word));
            at += n;
        } else {
            fputc(*at++, f);
        }
    }
    if (fclose(f) != 0) {
        free(out);
        return NULL;
    }
    return out;
}
