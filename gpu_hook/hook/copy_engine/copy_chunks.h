/* How a copy of pieces is cut: into windows, each a run of bytes of the host copy that belongs to one device and fits one
 * slot of the ring. Pure: no driver, no clock. */
#ifndef ALIQUOT_COPY_CHUNKS_H
#define ALIQUOT_COPY_CHUNKS_H

#include "copy_engine/extent.h"

struct window {
    uint64_t host_offset;
    size_t bytes;
    size_t piece; /* it begins in this one, */
    size_t skip;  /* so many bytes after its start */
    int device;
    double turn; /* between 0 and 1: devices take turns in proportion to their bytes */
};

/* In the order in which they are to be copied. NULL: no memory. The caller frees. */
struct window *windows_cut(const struct piece *pieces, size_t count, size_t most_bytes, size_t *window_count);

#endif
