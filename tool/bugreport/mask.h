/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces addresses and names in texts with placeholders. Equal addresses get equal placeholders. */
#ifndef HW_TOOL_MASK_H
#define HW_TOOL_MASK_H

/* A set of placeholders, which stay the same in all texts masked with this set. */
struct mask;
/* Returns an empty mask, or NULL if out of memory. */
struct mask *mask_new(void);
void mask_free(struct mask *m); /* m may be NULL */
/* Makes mask_text() replace word, and any domain name that follows it, with `becomes` wherever word is not part of a
 * longer word. A word that is NULL or empty is ignored. Both texts must live as long as m. At most 16 words are kept;
 * further words are ignored. */
void mask_word(struct mask *m, const char *word, const char *becomes);
/* Returns a copy of text in which each word of mask_word() is replaced, and each IPv4, IPv6 and MAC address becomes
 * <address-1>, <address-2>, and so on. A NIC name that contains a MAC address (enx..., wlx...) counts as an address.
 * Loopback addresses, 0.0.0.0 and :: remain unchanged. All addresses after the 255th share one placeholder. The caller
 * frees the copy. Returns NULL if out of memory. */
char *mask_text(struct mask *m, const char *text);

/* Masks one text, and replaces host with <host> unless host is NULL or empty. The caller frees the result. Returns NULL
 * if out of memory. */
char *mask_addresses(const char *text, const char *host);

#endif
