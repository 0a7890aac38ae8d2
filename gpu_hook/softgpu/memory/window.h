/* Device addresses. A range of addresses that faults on the host stands for device memory. Its
 * bytes lie in an alias window at a constant distance, which only this library uses. */
#ifndef SOFTGPU_WINDOW_H
#define SOFTGPU_WINDOW_H

#include <stddef.h>
#include <stdint.h>

#include "driver/contexts.h"

enum allocation_kind {
    ALLOCATION_PLAIN,    /* of cuMemAlloc and the pools */
    ALLOCATION_RESERVED, /* addresses only; never found */
    ALLOCATION_MAPPED,   /* a mapping of a handle into a reservation */
    ALLOCATION_IMPORTED, /* another process's memory; addresses of its own, nothing charged */
    ALLOCATION_GRAPH,    /* addresses of a graph's allocation, with memory while it is not absent */
};

struct allocation {
    enum allocation_kind kind;
    uint64_t start, bytes; /* as asked; of the mapping */
    uint64_t charged;      /* a mapping is charged nothing: its handle is */
    struct context *context; /* NULL for a mapping */
    unsigned device; /* index in the machine */
    uint64_t id;
    struct pool *pool; /* NULL: not from a pool */
    int is_dying;      /* its cuMemFreeAsync is queued: a second free is an error */
    int is_absent;     /* a graph's, while no launch has made it */
    /* a pool's reservation: the allocations are in here; under the window's lock */
    const struct ranges *parts;
};

struct ranges;

/* The rights of a device to memory; the values of CUmemAccess_flags. */
enum rights { RIGHTS_NONE = 0, RIGHTS_READ = 1, RIGHTS_WRITE = 3 };

int window_open(void); /* 0, or -1 after saying why */
/* The charge of an allocation of `bytes`, and its alignment: units of 512 bytes below 1 MiB, else
 * of 2 MiB. */
uint64_t window_round(uint64_t bytes);
/* CUDA_SUCCESS or OUT_OF_MEMORY; the memory is charged to the device. */
CUresult window_allocate(struct context *context, uint64_t bytes, uint64_t *address);
/* Frees the plain allocation that starts at `address`; 0, or -1 when none does. */
int window_free(uint64_t address);
void window_free_context(struct context *context);
/* Copies the record of the allocation or mapping that holds `address`; 0, or -1. */
int window_find(uint64_t address, struct allocation *found);
/* 1 when [address, address + bytes) lies within one live allocation, or in mappings without a gap,
 * and the device (by its index in the machine) has these rights to all of it. */
int window_allows(uint64_t address, uint64_t bytes, unsigned device, enum rights rights);
/* The same for work whose turn has come: what a pool has reserved is mapped, whichever allocation
 * lies there now. */
int window_backs(uint64_t address, uint64_t bytes, unsigned device, enum rights rights);
int window_is_device(uint64_t address);
/* 0, or -1 when no live plain allocation starts there or its free is queued already. */
int window_mark_dying(uint64_t address);
/* Memory of a device for a pool to divide. It is charged as a whole, and each allocation in `parts`
 * is an owner of its own. `parts` changes only between window_lock and window_unlock. CUDA_SUCCESS,
 * OUT_OF_MEMORY or SYSTEM_NOT_READY. */
CUresult window_reserve(unsigned physical, uint64_t bytes, const struct ranges *parts, uint64_t *start);
void window_release(uint64_t start); /* gives a reservation back whose parts are empty */
void window_lock(void);
void window_unlock(void);
/* Called under the lock: the record of what holds `address`, or NULL; and a number for a new
 * one. */
struct allocation *window_look_up(uint64_t address);
uint64_t window_new_id(void);
/* The host's view of a device address. */
void *window_bytes(uint64_t address);

#endif
