/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the exported symbols of a shared object from the bytes of its file. Unlike dlopen(), does not run the object's
 * code. */
#ifndef HW_TOOL_ELFSYM_H
#define HW_TOOL_ELFSYM_H

#include "base/base.h"

/* Calls fn with the name of each defined dynamic symbol that is not local and starts with prefix. Accepts only 64-bit
 * little-endian shared objects. *machine receives the object's e_machine (EM_* of elf.h). Fails with -ENOEXEC and
 * hw_error() if the bytes are not such an object, have no section headers or no valid dynamic symbol table, or are
 * truncated. */
int elf_symbols(const void *bytes, size_t len, const char *prefix, uint16_t *machine,
                void (*fn)(void *arg, const char *name), void *arg);

#endif
