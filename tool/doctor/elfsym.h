/* SPDX-License-Identifier: Apache-2.0 */
/* The symbols that a shared object exports, read from its bytes: nothing of it runs, as dlopen() would have it. */
#ifndef HW_TOOL_ELFSYM_H
#define HW_TOOL_ELFSYM_H

#include "base/base.h"

/* Calls fn with each defined dynamic symbol of the object that starts with prefix. Only 64-bit little-endian objects.
 * *machine gets its e_machine (elf.h, EM_*). -ENOEXEC with hw_error() where the bytes are none, or are cut short. */
int elf_symbols(const void *bytes, size_t len, const char *prefix, uint16_t *machine,
                void (*fn)(void *arg, const char *name), void *arg);

#endif
