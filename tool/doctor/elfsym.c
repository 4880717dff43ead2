/* SPDX-License-Identifier: Apache-2.0 */
/* Parses ELF files as specified in the System V ABI, chapters 4 and 5. Copies structures out of the file, because they
 * may be unaligned in an invalid file or in an unaligned buffer. */
#include "tool/doctor/elfsym.h"

#include <elf.h>
#include <string.h>

/* Returns true if [offset, offset + size) is within len bytes. */
static bool is_range_in_file(uint64_t offset, uint64_t size, size_t len)
{
    return offset <= len && size <= len - offset;
}

static int read_section_header(const uint8_t *b, size_t len, const Elf64_Ehdr *e, uint32_t i, Elf64_Shdr *out)
{
    if (i >= e->e_shnum || !is_range_in_file(e->e_shoff, (uint64_t)e->e_shnum * sizeof *out, len))
        return hw_fail(-ENOEXEC, "a section header is missing or lies outside the file, which may be truncated");
    memcpy(out, b + e->e_shoff + (uint64_t)i * sizeof *out, sizeof *out);
    return 0;
}

int elf_symbols(const void *bytes, size_t len, const char *prefix, uint16_t *machine,
                void (*fn)(void *arg, const char *name), void *arg)
{
    const uint8_t *b = bytes;
    Elf64_Ehdr e;
    Elf64_Shdr syms = {0}, strs;
    *machine = EM_NONE;
    if (len < sizeof e || memcmp(b, ELFMAG, SELFMAG) != 0)
        return hw_fail(-ENOEXEC, "not an ELF file");
    if (b[EI_CLASS] != ELFCLASS64 || b[EI_DATA] != ELFDATA2LSB)
        return hw_fail(-ENOEXEC, "not a 64-bit little-endian ELF file");
    memcpy(&e, b, sizeof e);
    *machine = e.e_machine;
    if (e.e_type != ET_DYN)
        return hw_fail(-ENOEXEC, "not a shared object");
    if (e.e_shnum == 0 || e.e_shentsize != sizeof syms)
        return hw_fail(-ENOEXEC, "the file has no usable section headers, so its symbols cannot be found");
    for (uint32_t i = 0; i < e.e_shnum && syms.sh_type != SHT_DYNSYM; i++) {
        int rc = read_section_header(b, len, &e, i, &syms);
        if (rc < 0)
            return rc;
    }
    if (syms.sh_type != SHT_DYNSYM || syms.sh_entsize != sizeof(Elf64_Sym))
        return hw_fail(-ENOEXEC, "the file has no valid dynamic symbol table");
    int rc = read_section_header(b, len, &e, syms.sh_link, &strs);
    if (rc < 0)
        return rc;
    if (!is_range_in_file(syms.sh_offset, syms.sh_size, len) || !is_range_in_file(strs.sh_offset, strs.sh_size, len) ||
        strs.sh_type != SHT_STRTAB || strs.sh_size == 0 || b[strs.sh_offset + strs.sh_size - 1] != 0)
        return hw_fail(
            -ENOEXEC,
            "the table of symbols or of their names is invalid or lies outside the file, which may be truncated");
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= syms.sh_size; at += sizeof(Elf64_Sym)) {
        Elf64_Sym s;
        memcpy(&s, b + syms.sh_offset + at, sizeof s);
        /* the string table ends with a NUL byte, so every offset into the table is the start of a terminated string */
        if (s.st_shndx == SHN_UNDEF || s.st_name >= strs.sh_size || ELF64_ST_BIND(s.st_info) == STB_LOCAL)
            continue;
        const char *name = (const char *)b + strs.sh_offset + s.st_name;
        if (strncmp(name, prefix, strlen(prefix)) == 0)
            fn(arg, name);
    }
    return 0;
}
