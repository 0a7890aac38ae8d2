/* What a copy between devices and the host copy is made of. */
#ifndef ALIQUOT_EXTENT_H
#define ALIQUOT_EXTENT_H

#include "interpose/driver.h"

#include <stddef.h>
#include <stdint.h>

/* A range of addresses whose memory leaves as one. It may be of many chunks; a copy may cut it anywhere. */
struct piece {
    CUdeviceptr address;  /* where it can be copied while it is resident */
    size_t bytes;
    int device;           /* CUdevice */
    uint64_t host_offset; /* in the host copy, whose parts follow each other */
};

#endif
