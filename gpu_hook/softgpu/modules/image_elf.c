/* Compiled code in ELF: one section .text.NAME for each entry, and its parameters in the records of
 * .nv.info.NAME. */
#include <elf.h>
#include <string.h>

#include "modules/images.h"

#define RECORD_SIZED 4           /* format: the record carries a length */
#define RECORD_PARAMETER 0x17    /* one parameter of an entry */
#define PARAMETER_BYTES_SHIFT 18 /* in the last word of that record */

struct parameter_record {
    uint32_t index;
    uint16_t ordinal, offset;
    uint32_t flags;
};

struct sections {
    const unsigned char *headers; /* at any alignment: an image in memory lies where it lies */
    unsigned count;
    const char *names;
    uint64_t names_bytes;
};

static Elf64_Shdr header_of(const struct sections *sections, unsigned index)
{
    Elf64_Shdr header;
    memcpy(&header, sections->headers + index * sizeof header, sizeof header);
    return header;
}

static const char *name_of(const struct sections *sections, unsigned index)
{
    Elf64_Shdr header = header_of(sections, index);
    return header.sh_name < sections->names_bytes ? sections->names + header.sh_name : "";
}

/* Its index, or the number of sections. */
static unsigned find_section(const struct sections *sections, const char *prefix, const char *name)
{
    size_t length = strlen(prefix);
    for (unsigned i = 0; i < sections->count; i++) {
        const char *found = name_of(sections, i);
        if (strncmp(found, prefix, length) == 0 && strcmp(found + length, name) == 0)
            return i;
    }
    return sections->count;
}

/* Records come in any order, mostly from the last parameter to the first. */
static int read_parameters(const unsigned char *records, uint64_t bytes, struct entry *entry)
{
    struct parameter found[IMAGE_PARAMETERS_MAX];
    unsigned count = 0;
    memset(found, 0, sizeof found);
    for (uint64_t at = 0; at + 4 <= bytes;) {
        uint16_t length;
        memcpy(&length, records + at + 2, sizeof length);
        uint64_t next = at + 4 + (records[at] == RECORD_SIZED ? length : 0);
        if (next > bytes)
            return -1;
        struct parameter_record record;
        if (records[at] == RECORD_SIZED && records[at + 1] == RECORD_PARAMETER && length >= sizeof record) {
            memcpy(&record, records + at + 4, sizeof record);
            if (record.ordinal >= IMAGE_PARAMETERS_MAX)
                return -1;
            found[record.ordinal] = (struct parameter){record.offset, record.flags >> PARAMETER_BYTES_SHIFT};
            if (record.ordinal >= count)
                count = record.ordinal + 1u;
        }
        at = next;
    }
    for (unsigned i = 0; i < count; i++)
        if (image_add_parameter(entry, found[i].offset, found[i].bytes) != 0)
            return -1;
    return 0;
}

static int lies_within(uint64_t offset, uint64_t length, size_t bytes)
{
    return offset <= bytes && length <= bytes - offset;
}

/* Of a whole image for a GPU. */
static int find_sections(const unsigned char *data, size_t bytes, struct sections *sections)
{
    Elf64_Ehdr header;
    if (bytes < sizeof header)
        return -1;
    memcpy(&header, data, sizeof header);
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_CUDA ||
        header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum ||
        !lies_within(header.e_shoff, (uint64_t)header.e_shnum * sizeof(Elf64_Shdr), bytes))
        return -1;
    *sections = (struct sections){data + header.e_shoff, header.e_shnum, NULL, 0};
    Elf64_Shdr names = header_of(sections, header.e_shstrndx);
    if (names.sh_size == 0 || !lies_within(names.sh_offset, names.sh_size, bytes))
        return -1;
    sections->names = (const char *)data + names.sh_offset;
    sections->names_bytes = names.sh_size;
    return sections->names[names.sh_size - 1] == '\0' ? 0 : -1;
}

int image_read_elf(const unsigned char *data, size_t bytes, struct image *image)
{
    struct sections sections;
    if (find_sections(data, bytes, &sections) != 0)
        return -1;
    for (unsigned i = 0; i < sections.count; i++) {
        const char *name = name_of(&sections, i);
        if (strncmp(name, ".text.", 6) != 0)
            continue;
        struct entry *entry = image_add_entry(image, name + 6, strlen(name + 6));
        if (entry == NULL)
            return -1;
        unsigned at = find_section(&sections, ".nv.info.", name + 6);
        if (at == sections.count)
            continue;
        Elf64_Shdr info = header_of(&sections, at);
        if (!lies_within(info.sh_offset, info.sh_size, bytes) ||
            read_parameters(data + info.sh_offset, info.sh_size, entry) != 0)
            return -1;
    }
    return 0;
}
