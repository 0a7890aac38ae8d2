/* The place of the bytes of a copy or a fill: an address with a pitch and a height. */
#ifndef SOFTGPU_PLACES_H
#define SOFTGPU_PLACES_H

#include <stdint.h>

struct place {
    uint64_t address;
    uint64_t pitch;  /* bytes from row to row */
    uint64_t height; /* rows from slice to slice */
};

struct shape {
    uint64_t width, height, depth; /* bytes, rows, slices */
};

#endif
