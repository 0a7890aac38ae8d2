/* Memory handles: what cuMemCreate makes and cuMemMap maps. The memory exists, and stays charged to
 * the process that created it, until no reference and no mapping is left. */
#ifndef SOFTGPU_PHYSICAL_H
#define SOFTGPU_PHYSICAL_H

#include <stdint.h>

#include <cuda.h>

#include "device/backing.h"

/* A CUmemGenericAllocationHandle is a pointer to this. Guarded by the window's lock, what never
 * changes apart. */
struct physical {
    uint64_t bytes, id;
    CUmemAllocationProp properties;
    unsigned device; /* index in the machine; MACHINE_DEVICES: host memory */
    int is_imported; /* charged to its creator */
    int references, mappings;
    struct backing backing;
    struct physical *next; /* of those with a file of their own */
};

CUresult physical_create(uint64_t bytes, const CUmemAllocationProp *properties, struct physical **made);
CUresult physical_import(int descriptor, struct physical **made);
/* The handle's memory, or NULL when it is no handle. Under the window's lock. */
struct physical *physical_of(CUmemGenericAllocationHandle handle);
/* Called under the window's lock: drops references and mappings. 1 when none is left: no call finds
 * the memory any more, and the caller frees it outside the lock. */
int physical_let_go(struct physical *physical, int references, int mappings);
void physical_free(struct physical *physical);
/* Called by cuInit, once. Where a device is full, `make_room` is called; it says whether room may
 * have come. */
void physical_on_full_device(int (*make_room)(unsigned device));
/* Called in a forked child, under the window's lock: drops the parent's memory. */
void physical_forget(void);

#endif
