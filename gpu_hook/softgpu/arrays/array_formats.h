/* Element formats of arrays: how many bytes an element takes, and which formats come in blocks of
 * texels. */
#ifndef SOFTGPU_ARRAY_FORMATS_H
#define SOFTGPU_ARRAY_FORMATS_H

#include <cuda.h>

struct element {
    unsigned bytes;
    unsigned edge; /* texels of a block in each direction: 1, or 4 where it is compressed */
};

/* CUDA_SUCCESS, INVALID_VALUE for what does not exist, or NOT_SUPPORTED for the video formats in
 * planes. */
CUresult array_element(CUarray_format format, unsigned channels, struct element *element);

#endif
