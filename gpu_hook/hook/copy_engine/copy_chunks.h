/* Cuts a copy of extents into chunks, each a run of bytes of the host copy that belongs to one
 * device and fits one buffer of the ring. Pure: no driver, no clock. */
#ifndef ALIQUOT_COPY_CHUNKS_H
#define ALIQUOT_COPY_CHUNKS_H

#include "copy_engine/extent.h"

struct copy_chunk {
    uint64_t host_offset;
    size_t bytes;
    size_t extent; /* it begins in this one, */
    size_t skip;  /* so many bytes after its start */
    int device;
    double turn; /* between 0 and 1: devices take turns in proportion to their bytes */
};

/* Return the chunks in the order in which they are to be copied. NULL: no memory. The caller frees
 * them. */
struct copy_chunk *copy_chunks_cut(const struct extent *extents, size_t count, size_t most_bytes,
                                   size_t *chunk_count);

#endif
