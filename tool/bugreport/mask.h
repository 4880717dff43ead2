/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses and names in texts, replaced so that equal ones stay equal. */
#ifndef HW_TOOL_MASK_H
#define HW_TOOL_MASK_H

/* Placeholders, which stay the same in all texts of one mask. */
struct mask;
/* NULL: no memory. */
struct mask *mask_new(void);
void mask_free(struct mask *m); /* NULL is allowed */
/* From now on word (NULL or "": none), where it stands alone, becomes `becomes`, with the rest of a domain name that
 * follows it. Both texts must live as long as m. At most 16 words; more are ignored. */
void mask_word(struct mask *m, const char *word, const char *becomes);
/* Returns a new text that says what text says, with each word of mask_word() replaced and each IPv4, IPv6 and MAC
 * address as <address-1>, <address-2>, ...; a NIC that udev named by its MAC address (enx...) is one, too. The
 * loopback's addresses and 0.0.0.0 stay. The caller frees it; NULL: no memory. */
char *mask_text(struct mask *m, const char *text);

/* The same for one text, with host (NULL or "": none) as <host>. */
char *mask_addresses(const char *text, const char *host);

#endif
