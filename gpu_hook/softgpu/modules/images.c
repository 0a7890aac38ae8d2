/* Tells formats apart: PTX text, an ELF, or a fat binary that holds either. */
#include "modules/images.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define FAT_WRAPPER_MAGIC 0x466243b1u /* struct that points to a fat binary */
#define FAT_MAGIC 0xba55ed50u
#define FAT_KIND_PTX 1
#define FAT_KIND_ELF 2
#define FAT_COMPRESSED ((1ull << 13) | (1ull << 15)) /* LZ4, Zstandard */

struct fat_wrapper {
    uint32_t magic, version;
    const void *data;
    void *unused;
};

struct fat_header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes; /* of what follows the header */
};

struct fat_entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t compressed_bytes, unused[3];
    uint64_t unused_name;
    uint64_t flags;
};

struct entry *image_add_entry(struct image *image, const char *name, size_t name_length)
{
    struct entry *entries = realloc(image->entries, (image->entry_count + 1) * sizeof *entries);
    if (entries == NULL)
        return NULL;
    image->entries = entries;
    struct entry *entry = &entries[image->entry_count];
    *entry = (struct entry){.name = strndup(name, name_length)};
    image->entry_count += entry->name != NULL;
    return entry->name ? entry : NULL;
}

int image_add_parameter(struct entry *entry, uint32_t offset, uint32_t bytes)
{
    if (entry->parameter_count == IMAGE_PARAMETERS_MAX || offset > IMAGE_PARAMETER_BYTES_MAX ||
        bytes > IMAGE_PARAMETER_BYTES_MAX - offset)
        return -1;
    struct parameter *parameters =
        realloc(entry->parameters, (entry->parameter_count + 1) * sizeof *parameters);
    if (parameters == NULL)
        return -1;
    entry->parameters = parameters;
    parameters[entry->parameter_count++] = (struct parameter){offset, bytes};
    if (offset + bytes > entry->parameter_bytes)
        entry->parameter_bytes = offset + bytes;
    return 0;
}

int image_add_global(struct image *image, const char *name, size_t name_length, uint64_t bytes)
{
    struct global *globals = realloc(image->globals, (image->global_count + 1) * sizeof *globals);
    if (globals == NULL)
        return -1;
    image->globals = globals;
    globals[image->global_count] = (struct global){strndup(name, name_length), bytes};
    if (globals[image->global_count].name == NULL)
        return -1;
    image->global_count++;
    return 0;
}

void image_close(struct image *image)
{
    for (size_t i = 0; i < image->entry_count; i++) {
        free(image->entries[i].name);
        free(image->entries[i].parameters);
    }
    for (size_t i = 0; i < image->global_count; i++)
        free(image->globals[i].name);
    free(image->entries);
    free(image->globals);
    memset(image, 0, sizeof *image);
}

/* The first entry that can be read gives the names: the others are the same code for other
 * devices. */
static CUresult open_fat(const unsigned char *data, size_t bytes, struct image *image)
{
    struct fat_header header;
    if (bytes < sizeof header)
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(&header, data, sizeof header);
    if (header.header_bytes < sizeof header || header.header_bytes > bytes ||
        header.bytes > bytes - header.header_bytes)
        return CUDA_ERROR_INVALID_IMAGE;
    for (uint64_t at = 0; at + sizeof(struct fat_entry) <= header.bytes;) {
        struct fat_entry entry;
        memcpy(&entry, data + header.header_bytes + at, sizeof entry);
        if (entry.header_bytes < sizeof entry || entry.header_bytes > header.bytes - at ||
            entry.bytes > header.bytes - at - entry.header_bytes)
            return CUDA_ERROR_INVALID_IMAGE;
        const unsigned char *code = data + header.header_bytes + at + entry.header_bytes;
        if (entry.flags & FAT_COMPRESSED)
            image->is_opaque = 1;
        else if (entry.kind == FAT_KIND_ELF)
            return image_read_elf(code, entry.bytes, image) ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
        else if (entry.kind == FAT_KIND_PTX)
            return image_read_ptx((const char *)code, entry.bytes, image) ? CUDA_ERROR_INVALID_PTX : CUDA_SUCCESS;
        at += entry.header_bytes + entry.bytes;
    }
    return image->is_opaque ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static CUresult open_any(const unsigned char *data, size_t bytes, struct image *image)
{
    uint32_t magic;
    if (isspace(*data) || *data == '.' || *data == '/') {
        const char *text = (const char *)data;
        return image_read_ptx(text, strlen(text), image) ? CUDA_ERROR_INVALID_PTX : CUDA_SUCCESS;
    }
    /* every binary format here begins with four bytes that are not zero */
    if (memchr(data, '\0', 4))
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(&magic, data, sizeof magic);
    if (memcmp(data, "\177ELF", 4) == 0)
        return image_read_elf(data, bytes, image) ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
    if (magic == FAT_MAGIC)
        return open_fat(data, bytes, image);
    /* an address in a file leads nowhere */
    if (magic == FAT_WRAPPER_MAGIC && bytes == IMAGE_BYTES_UNKNOWN) {
        struct fat_wrapper wrapper;
        memcpy(&wrapper, data, sizeof wrapper);
        return wrapper.data ? open_fat(wrapper.data, IMAGE_BYTES_UNKNOWN, image) : CUDA_ERROR_INVALID_IMAGE;
    }
    return CUDA_ERROR_INVALID_IMAGE;
}

CUresult image_open(const void *data, size_t bytes, struct image *image)
{
    memset(image, 0, sizeof *image);
    if (data == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = open_any(data, bytes, image);
    if (result != CUDA_SUCCESS)
        image_close(image);
    return result;
}
