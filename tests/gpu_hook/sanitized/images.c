/* The software GPU's readers of PTX, ELF and fat binaries, given good images with random damage: they refuse or they
 * understand, and touch nothing outside. `images PTX FIRST COUNT` prints how many were taken and how many refused. Each
 * image lies in memory of exactly its size, so that a sanitizer sees one byte too far. */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "modules/images.h"

#define MOST_BYTES 16384
#define FAT_MAGIC 0xba55ed50u

static uint64_t bits;

static uint64_t draw(uint64_t below)
{
    uint64_t value = bits += 0x9E3779B97F4A7C15ull;
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9ull;
    value = (value ^ value >> 27) * 0x94D049BB133111EBull;
    return (value ^ value >> 31) % below;
}

static size_t read_ptx(const char *path, unsigned char *image)
{
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(image, 1, MOST_BYTES - 1, file) : 0;
    if (file)
        fclose(file);
    return length;
}

/* One entry "f" with two parameters. */
static size_t make_elf(unsigned char *image)
{
    static const char names[] = "\0.text.f\0.nv.info.f\0.shstrtab";
    static const uint32_t records[] = {0x000c1704, 0, 0x00080001, 4u << 18, 0x000c1704, 0, 0x00000000, 8u << 18};
    Elf64_Ehdr header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT}, .e_machine = EM_CUDA,
                         .e_shoff = 256, .e_shentsize = sizeof(Elf64_Shdr), .e_shnum = 4, .e_shstrndx = 3};
    Elf64_Shdr sections[4] = {{0},
                              {.sh_name = 1, .sh_offset = 64, .sh_size = 16},
                              {.sh_name = 9, .sh_offset = 128, .sh_size = sizeof records},
                              {.sh_name = 20, .sh_offset = 80, .sh_size = sizeof names}};
    memset(image, 0, 512);
    memcpy(image, &header, sizeof header);
    memcpy(image + 80, names, sizeof names);
    memcpy(image + 128, records, sizeof records);
    memcpy(image + 256, sections, sizeof sections);
    return 512;
}

static size_t make_fat(unsigned char *image, int kind, size_t code_bytes)
{
    struct {
        uint32_t magic;
        uint16_t version, header_bytes;
        uint64_t bytes;
        uint16_t kind, entry_version;
        uint32_t entry_header_bytes;
        uint64_t code_bytes;
        uint32_t compressed_bytes, unused[3];
        uint64_t unused_name, flags;
    } header = {FAT_MAGIC, 1, 16, 0, (uint16_t)kind, 1, 56, code_bytes, 0, {0}, 0, 0};
    memmove(image + sizeof header, image, code_bytes);
    header.bytes = sizeof header - 16 + code_bytes;
    memcpy(image, &header, sizeof header);
    return sizeof header + code_bytes;
}

static size_t damage(unsigned char *image, size_t length)
{
    static const unsigned char values[] = {0, 1, 0x7f, 0x80, 0xff, '.', '(', '{', '"', '\n'};
    for (uint64_t left = draw(8); left > 0; left--) {
        size_t at = draw(length), run = 1 + draw(8);
        if (draw(10) == 0)
            length = 4 + draw(length - 3);
        else if (draw(4) == 0)
            memmove(image + at, image + draw(length), length - at < run ? length - at : run);
        else
            image[at] = draw(2) ? values[draw(sizeof values)] : (unsigned char)draw(256);
        if (length < 8)
            break;
    }
    return length;
}

static int try(const char *ptx)
{
    static unsigned char image[2 * MOST_BYTES];
    unsigned way = (unsigned)draw(4);
    size_t length = way % 2 ? make_elf(image) : read_ptx(ptx, image);
    if (way >= 2)
        length = make_fat(image, way % 2 ? 2 : 1, length);
    length = damage(image, length);
    char *exact = calloc(1, length + 8); /* as image_open wants it: eight zeroes behind */
    struct image found;
    memcpy(exact, image, length);
    CUresult result = image_open(exact, length, &found);
    for (size_t i = 0; result == CUDA_SUCCESS && i < found.entry_count; i++)
        if (strlen(found.entries[i].name) > length || found.entries[i].parameter_bytes > IMAGE_PARAMETER_BYTES_MAX)
            abort();
    if (result == CUDA_SUCCESS)
        image_close(&found);
    free(exact);
    return result == CUDA_SUCCESS;
}

int main(int count, char **arguments)
{
    unsigned taken = 0, refused = 0;
    if (count != 4)
        return 2;
    unsigned long first = strtoul(arguments[2], NULL, 10), number = strtoul(arguments[3], NULL, 10);
    for (unsigned long seed = first; seed < first + number; seed++) {
        bits = seed << 20;
        try(arguments[1]) ? taken++ : refused++;
    }
    printf("%u %u\n", taken, refused);
    return 0;
}
