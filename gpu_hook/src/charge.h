/* The one way to allocate: charge, call the driver, then record, or refund if it failed. */
#ifndef ALIQUOT_CHARGE_H
#define ALIQUOT_CHARGE_H

#include "allocations.h"
#include "driver.h"

struct charge {
    bool acts; /* false: the call is forwarded as it is */
    int device;
    uint64_t bytes;
};

#define CHARGE_CURRENT (-1) /* the current context's device */
#define CHARGE_NOTHING (-2) /* the call takes no device memory */

/* Returns CUDA_SUCCESS, or out of memory when the quota does not hold it. `device`: a CUdevice, or one of these. */
CUresult charge_begin(struct charge *charge, int device, uint64_t bytes);

/* Takes the charge up to what the driver took, known only after the call. False: over quota. */
bool charge_raise(struct charge *charge, uint64_t bytes);

/* After the call. With success, records what was allocated; when there is no memory for the record, returns false
 * and the caller frees. With failure, refunds. */
bool charge_end(struct charge *charge, CUresult result, uint64_t key, enum allocation_kind kind);

/* Around a free: takes the record first, for the address may be used again at once; puts it back on failure. */
struct release {
    bool acts;
    bool is_known;
    struct allocation allocation;
};
void release_begin(struct release *release, uint64_t key);
void release_end(struct release *release, CUresult result);

/* Gives back what a record holds. */
void charge_refund(const struct allocation *allocation);

/* One more call that takes device memory in a family that is not charged. */
void charge_unaccounted(void);

#endif
