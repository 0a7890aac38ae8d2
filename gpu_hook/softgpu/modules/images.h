/* Code images, read for names and parameter sizes only. Instructions are never read: compiled GPU
 * code is timed, not executed. */
#ifndef SOFTGPU_IMAGES_H
#define SOFTGPU_IMAGES_H

#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

#define IMAGE_PARAMETERS_MAX 1024
#define IMAGE_PARAMETER_BYTES_MAX 32764

struct parameter {
    uint32_t offset, bytes;
};

struct entry {
    char *name;
    struct parameter *parameters;
    uint32_t parameter_count;
    uint32_t parameter_bytes;
};

struct global {
    char *name;
    uint64_t bytes;
};

struct image {
    struct entry *entries;
    size_t entry_count;
    struct global *globals;
    size_t global_count;
    int is_opaque; /* compressed: any name may be in it, with unknown parameters */
};

#define IMAGE_BYTES_UNKNOWN SIZE_MAX /* of an image in memory: it says itself where it ends, and is believed */

/* CUDA_SUCCESS, INVALID_IMAGE, INVALID_PTX or OUT_OF_MEMORY; after an error `image` is empty. The
 * bytes of a file are followed by eight zeroes. */
CUresult image_open(const void *data, size_t bytes, struct image *image);
void image_close(struct image *image);
/* A file's bytes with eight zeroes behind them, to be freed. CUDA_SUCCESS, FILE_NOT_FOUND or
 * OUT_OF_MEMORY. */
CUresult image_read_file(const char *path, char **data, size_t *bytes);

/* For the readers of one format each. They return 0, or -1 without memory or for a malformed
 * image. */
int image_read_ptx(const char *text, size_t length, struct image *image);
int image_read_elf(const unsigned char *data, size_t bytes, struct image *image);
struct entry *image_add_entry(struct image *image, const char *name, size_t name_length);
int image_add_parameter(struct entry *entry, uint32_t offset, uint32_t bytes);
int image_add_global(struct image *image, const char *name, size_t name_length, uint64_t bytes);

#endif
