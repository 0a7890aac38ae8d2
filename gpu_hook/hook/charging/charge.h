/* The one way to allocate: charge, call the driver, then record, or refund if it failed. */
#ifndef ALIQUOT_CHARGE_H
#define ALIQUOT_CHARGE_H

#include "accounting/allocations.h"
#include "interpose/driver.h"
#include "accounting/quota.h"

struct charge {
    bool acts;    /* false: the call is forwarded as it is */
    bool is_late; /* nothing is charged yet: the driver should refuse the call; if it does not, charge_end charges */
    bool is_on_device; /* between residency_enter and residency_leave */
    int device;
    uint64_t bytes;
    uint32_t staying; /* a bit of enum aliquot_staying, when the caller knows better than its kind */
};

#define CHARGE_CURRENT (-1) /* the current context's device */
#define CHARGE_NOTHING (-2) /* the call takes no memory that is charged */

/* Returns CUDA_SUCCESS, or out of memory when the quota does not hold it, or an interrupt ended the wait. Memory of a device is taken while the process is
 * resident: until charge_end it does not move. `device`: a CUdevice, QUOTA_HOST, or one of
 * these. `looks_wrong`: the driver will refuse the arguments; its own error is the right one, also over quota. */
CUresult charge_begin(struct charge *charge, int device, uint64_t bytes, bool looks_wrong);

/* What a call gets that the quota does not hold: out of memory, or the error that its context has met before. */
CUresult charge_refusal(void);

/* Takes the charge to what the driver took, known only after the call. False: over quota. */
bool charge_change(struct charge *charge, uint64_t bytes);

/* After the call. With success, records what was allocated; when that cannot be charged or there is no memory for the
 * record, returns false and the caller frees. With failure, refunds. */
bool charge_end(struct charge *charge, CUresult result, uint64_t key, enum allocation_kind kind);

/* Around a free: takes the record first, for the address may be used again at once; puts it back on failure. */
struct release {
    bool acts;
    bool is_known;
    struct allocation allocation;
};
void release_begin(struct release *release, uint64_t key, enum allocation_space space);
void release_end(struct release *release, CUresult result);

/* Records what is charged already. False: no memory for the record; nothing is changed. */
bool charge_record(const struct allocation *allocation);

/* Gives back what a record holds. */
void charge_refund(const struct allocation *allocation);

/* Memory that is neither charged nor refused: that of another API. */
void charge_unaccounted(void);

#endif
