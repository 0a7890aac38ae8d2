/* Managed memory: host memory that devices use too. A block of it is charged to a device while it
 * is resident there: after a prefetch, a copy, a fill, or a launch that was given a pointer to it.
 * The host's next use faults then, where the kernel tells us (host_faults.h), and the block goes
 * home. Devices use the bytes through a second mapping, which never faults. */
#ifndef SOFTGPU_MANAGED_H
#define SOFTGPU_MANAGED_H

#include <stdint.h>

#include "driver/contexts.h"
#include "managed/blocks.h"

#define MANAGED_HOST (-1)

struct managed_range {
    uint64_t start, bytes, id;
    struct context *context;
    unsigned attached; /* CUmemAttach_flags */
};

CUresult managed_allocate(struct context *context, uint64_t bytes, unsigned flags, uint64_t *address);
/* 0, or -1 when no managed allocation starts there. */
int managed_free(uint64_t address);
void managed_free_context(struct context *context);
int managed_find(uint64_t address, struct managed_range *found); /* 0, or -1 */
int managed_holds(uint64_t address, uint64_t bytes);
/* The devices' view of an address; that address itself where no managed memory is. */
void *managed_view(uint64_t address);
void managed_attach(uint64_t address, unsigned flags);
/* Makes a range resident on a device (by its index in the machine), as far as there is room;
 * MANAGED_HOST moves it to the host. Returns the bytes that moved. Memory that is not managed does
 * not move. */
uint64_t managed_move(uint64_t address, uint64_t bytes, int device);
/* The same for a device that uses the range; adds to *cost. A block whose preferred location is
 * elsewhere is used from there, and so is one that the device accesses by advice while it is full. A
 * read-mostly one is copied, until a device writes it. */
void managed_use(uint64_t address, uint64_t bytes, unsigned device, int is_write, struct managed_cost *cost);
/* The same for every managed allocation that a word of these arguments points into, from that
 * address to its end; the word at `written` points to what is written. Returns when the use may begin: after the faults, and the copies. */
uint64_t managed_use_arguments(const void *arguments, uint64_t bytes, unsigned device, uint32_t written,
                               uint64_t clock);
void managed_set_fault(uint64_t nanoseconds); /* that a fault takes, on either side */
/* Charges as slots_charge does. Where that does not fit, blocks go to the host, of all processes those
 * that came first. */
int managed_charge(unsigned device, uint64_t bytes);
/* Calls `visit` with the advice of each block of a range; -1 when the range is not within one
 * managed allocation. */
int managed_visit(uint64_t address, uint64_t bytes, void (*visit)(struct managed_advice *, void *), void *argument);

#endif
