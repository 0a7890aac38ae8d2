/* The one way to allocate: charge, call the driver, then record what was allocated, or refund if
 * the call failed. */
#ifndef ALIQUOT_CHARGE_H
#define ALIQUOT_CHARGE_H

#include "accounting/allocations.h"
#include "interpose/driver.h"
#include "accounting/quota.h"

struct charge {
    bool acts;    /* false: the call is forwarded as it is */
    /* nothing is charged yet, because the driver should refuse the call; if it does not, charge_end
     * charges */
    bool is_late;
    bool is_on_device; /* between residency_enter and residency_leave */
    int device;
    uint64_t bytes;
    /* a bit of enum aliquot_pin_reason, when the caller knows better than its kind */
    uint32_t pin_reasons;
};

#define CHARGE_CURRENT (-1) /* the current context's device */
#define CHARGE_NOTHING (-2) /* the call takes no memory that is charged */

/* Begin an allocation. Returns CUDA_SUCCESS, or out of memory where the quota does not hold it or
 * an interrupt ended the wait. For memory of a device the process is resident, and does not move,
 * until charge_end. `device`: a CUdevice, QUOTA_HOST, or one of these. `looks_wrong`: the driver
 * will refuse the arguments; its own error is the right one, also over quota. */
CUresult charge_begin(struct charge *charge, int device, uint64_t bytes, bool looks_wrong);

/* Return the error of a call that the quota does not hold: out of memory, or the error that its
 * context has met before. */
CUresult charge_refusal(void);

/* Change the charge to what the driver took, which is known only after the call. False: over
 * quota. */
bool charge_change(struct charge *charge, uint64_t bytes);

/* End an allocation, after the call. On success, record it; returns false where it cannot be
 * charged or there is no memory for the record, and then the caller frees. On failure, refund. */
bool charge_end(struct charge *charge, CUresult result, uint64_t key, enum allocation_kind kind);

/* Around a free: release_begin takes the record, because the address may be used again at once;
 * release_end puts it back if the free failed. */
struct release {
    bool acts;
    bool is_known;
    struct allocation allocation;
};
void release_begin(struct release *release, uint64_t key, enum allocation_space space);
void release_end(struct release *release, CUresult result);

/* Record what is charged already. False: no memory for the record; nothing is changed. */
bool charge_record(const struct allocation *allocation);

/* Refund what a record holds. */
void charge_refund(const struct allocation *allocation);

/* Count memory of another API, which is neither charged nor refused. */
void charge_unaccounted(void);

#endif
