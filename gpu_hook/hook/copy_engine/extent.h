/* An extent: the unit of copies between devices and the host copy. */
#ifndef ALIQUOT_EXTENT_H
#define ALIQUOT_EXTENT_H

#include "interpose/driver.h"

#include <stddef.h>
#include <stdint.h>

/* A range of addresses whose memory leaves as a whole. It may consist of many chunks of physical
 * memory, and a copy may cut it anywhere. */
struct extent {
    CUdeviceptr address;  /* the address that a copy uses while the extent is resident */
    size_t bytes;
    int device;           /* CUdevice */
    uint64_t host_offset; /* in the host copy, where extents follow each other */
};

#endif
