/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the exported symbols of a shared object from its bytes, without running any of its code, unlike dlopen(). */
#ifndef HW_TOOL_ELFSYM_H
#define HW_TOOL_ELFSYM_H

#include "base/base.h"

/* Calls fn with each defined dynamic symbol of the object that starts with prefix. Only 64-bit little-endian objects.
 * *machine receives its e_machine (elf.h, EM_*). -ENOEXEC with hw_error() if the bytes are no such object, or are
 * truncated. */
int elf_symbols(const void *bytes, size_t len, const char *prefix, uint16_t *machine,
                void (*fn)(void *arg, const char *name), void *arg);

#endif
