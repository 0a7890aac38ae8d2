/* The handles of the virtual-memory API that this process created, and where they are mapped. Where
 * memory can leave, a program's handle is a name of ours: the driver's own handle ends at a
 * swap-out, and another one takes its place. The hook holds one reference to the driver's handle
 * until the program's references and mappings are all gone. Elsewhere the handle's value is the
 * driver's own, every call of the program is one of the driver, and the hook counts uses for the
 * charge alone.
 *
 * Guarded by vmm_lock. The hook holds it over the driver's calls that change the uses of
 * handles: the value of a handle or an address may be used again as soon as the driver let it
 * go. A query about an address does not wait for such calls: handles_read_mapping takes a lock of
 * its own, which is held for no driver call. */
#ifndef ALIQUOT_HANDLES_H
#define ALIQUOT_HANDLES_H

#include "interpose/driver.h"
#include "base/spans.h"

#include <stdbool.h>
#include <stdint.h>

struct handle {
    struct span name; /* the program's value of it; first */
    CUmemGenericAllocationHandle real;
    uint64_t bytes;
    /* as the program gave them, as the driver reports them */
    CUmemAllocationProp requested, reported;
    uint32_t references; /* the program's releases that are still due */
    uint32_t mappings;   /* at addresses and in sparse arrays */
    uint32_t pin_reasons;    /* bits of enum aliquot_pin_reason that hold it on its device */
    bool is_named; /* not by the driver's value */
    bool is_out;
    uint64_t id;
    uint64_t host_offset;
    CUdeviceptr copy_address; /* extents.c's: where a copy reaches it */
    CUdeviceptr scratch;    /* the same, when no mapping of the program's will do; 0: none */
    bool is_scratch_mapped;
};

struct mapping { /* of a handle's memory from its start, at an address that the program reserved */
    struct span span; /* first */
    struct handle *handle;
    uint64_t id;
    bool is_mapped;            /* extents.c's: it is out otherwise */
    uint64_t readers, writers; /* bits of devices; writers read, too */
    CUmemAccessDesc host;      /* the host's access where flags are not 0 */
};

/* The answers to a query about an address of a named handle's memory. */
struct mapping_view {
    CUdeviceptr start;
    size_t bytes;
    uint64_t id, memory_id;
    uint64_t readers, writers; /* as in struct mapping */
    int device;
    CUmemAllocationHandleType handle_types;
    bool is_out;
};

/* Add a handle that the driver just made, with one reference. `is_named`: the hook names it. NULL:
 * no memory. */
struct handle *handles_add(CUmemGenericAllocationHandle real, size_t bytes,
                           const CUmemAllocationProp *requested, bool is_named, bool can_leave);

/* Find a handle by the program's value, also one without references that is mapped. NULL: not of
 * this process. */
struct handle *handles_find(CUmemGenericAllocationHandle name);
struct handle *handles_of_real(CUmemGenericAllocationHandle real);

/* Pin the handle's memory from now on; `reason`: a bit of enum aliquot_pin_reason. */
void handles_hold(struct handle *handle, uint32_t reason);

/* Count uses. With the last one, a named handle's real one is released, the charge refunded and the
 * record removed. */
void handles_change(struct handle *handle, int references, int mappings);

bool handles_map(struct handle *handle, CUdeviceptr address, size_t bytes); /* false: no memory */
void handles_unmap(struct mapping *mapping);
/* Read the mapping of a named handle at the address. Called without vmm_lock, while the process is
 * held where it is. False: there is none. */
bool handles_read_mapping(CUdeviceptr address, struct mapping_view *view);
struct mapping *handles_mapping_at(CUdeviceptr address);
/* Return the first mapping that ends after the address. */
struct mapping *handles_mapping_from(CUdeviceptr address);
void handles_set_access(CUdeviceptr start, size_t bytes, const CUmemAccessDesc *accesses,
                        size_t count);

/* Return whether the hook has named any handle. One load, without the lock. */
bool handles_are_named(void);

/* Return the first handle after this one; NULL: the first of all. For extents.c. */
struct handle *handles_next(const struct handle *handle);

/* Called in the child of a fork. */
void handles_reset(void);

#endif
