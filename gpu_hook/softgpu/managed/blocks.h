/* Blocks of managed memory on devices: who has one, and which leaves first when a device is full.
 * All calls are under managed.c's mutex. The memory of all processes of a machine competes: what came
 * first leaves first, whosever it is and however often it is used, for a driver sees faults and
 * prefetches alone. */
#ifndef SOFTGPU_BLOCKS_H
#define SOFTGPU_BLOCKS_H

#include <cuda.h>
#include <stdint.h>

#include "device/layout.h"

#define MANAGED_BLOCK (2ull << 20)

/* The program's advice for a block. */
struct managed_advice {
    CUmemLocation preferred, prefetched; /* type 0: none */
    uint32_t accessed_by;                /* bit i: visible device i; bit 31: the host */
    int is_read_mostly;
};

/* The cost of a device's use of managed memory, before it can begin. */
struct managed_cost {
    uint64_t faults;          /* blocks that were not mapped on the device */
    uint64_t arrived, left;   /* bytes that came to the device, and that went home for them */
    uint64_t remote;          /* bytes that are used where they are, over the link */
};

struct block_link {
    struct block *earlier, *later; /* of the same device, as they came */
    uint64_t came;                 /* when that was */
    uint64_t placed;               /* in which pass it was put at the end */
};

struct block {
    uint64_t start, charge; /* address, and the bytes that it takes on a device */
    uint32_t devices;       /* bit i: resident on device i of the machine; of read-mostly ones several */
    uint32_t mapped;        /* bit i: device i took a fault for it, and uses it where it is */
    uint64_t pass;          /* the last one that used it */
    uint8_t has_home;       /* the host's bytes are right: nothing is copied when it leaves */
    uint8_t is_touched;     /* the host or a device has used it: there are bytes to move */
    struct managed_advice advice;
    struct block_link links[MACHINE_DEVICES];
};

void block_init(struct block *block, uint64_t start, uint64_t bytes);
int block_is_on(const struct block *block, unsigned device);
/* Makes the block resident, or puts it at the end: 1 when it is there afterwards. Others leave for
 * it, but none that the same pass used: a range larger than the device does not drive itself out. */
int block_bring(struct block *block, unsigned device, uint64_t pass, struct managed_cost *cost);
/* The same where no other has to leave for it. */
int block_bring_into_room(struct block *block, unsigned device, uint64_t pass, struct managed_cost *cost);
/* Ends all copies but that of this device, which was written; the host faults at its next use. */
void block_note_write(struct block *block, unsigned device);
/* Takes the block off all devices; returns the bytes that had to be copied home. */
uint64_t block_send_home(struct block *block);
/* Makes the host's bytes right, and leaves those of devices; returns the bytes that had to be copied. */
uint64_t block_copy_home(struct block *block);
/* Takes off the device what other processes have taken the room of. */
void blocks_settle(unsigned device);
/* Lets the block of the machine that came first leave for so many bytes; 0 when there is none. */
int blocks_make_room(unsigned device, uint64_t bytes, uint64_t pass, struct managed_cost *cost);

#endif
