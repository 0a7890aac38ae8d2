/* Arrays and mipmapped arrays: device memory that is reached by coordinates only. Their bytes lie
 * row by row, each row and slice rounded as the tiles of a GPU's arrays are. No program sees the
 * layout. */
#ifndef SOFTGPU_ARRAYS_H
#define SOFTGPU_ARRAYS_H

#include "arrays/array_formats.h"
#include "driver/contexts.h"
#include "memory/places.h"

/* A CUarray is a pointer to this. */
struct array {
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    struct element element;
    uint64_t offset;       /* within its storage */
    uint64_t row_bytes;    /* of a row's elements; rows and slices as copies see them */
    uint64_t rows, slices;
    uint64_t pitch, padded_rows;
    struct storage *storage;
};

/* A CUmipmappedArray is a pointer to this; so is, with one level, what a plain array owns. */
struct storage {
    struct context *context;
    uint64_t address; /* 0: its mapping is deferred */
    uint64_t bytes;   /* as charged */
    int is_mipmapped;
    struct storage *next, **link; /* what points to it */
    unsigned level_count;
    struct array levels[];
};

/* A storage for one array, or for the levels of a mipmapped one. */
CUresult storage_open(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned level_count, int is_mipmapped,
                      struct storage **made);
/* Waits for the work of its context, and frees the storage. The caller removed the handles. */
void storage_close(struct storage *storage);
void arrays_close_all(struct context *context);
struct array *array_of(CUarray handle); /* NULL when there is none */

/* Sets the place of the corner of a copy in an array. INVALID_HANDLE, or INVALID_VALUE when the
 * copy does not fit. */
CUresult array_place(CUarray handle, uint64_t x_bytes, uint64_t y, uint64_t z, const struct shape *shape,
                     struct place *place);

#endif
