/* Byte credit: the memory that the agent lent this process on each device, and of the host's
 * page-locked memory, and the part of it that is charged. Every byte that is lent is either
 * charged or spare; a byte is lent before it is charged. */
#ifndef ALIQUOT_QUOTA_H
#define ALIQUOT_QUOTA_H

#include "accounting/devices.h"
#include "agent_link/session.h"

#include <stdbool.h>
#include <stdint.h>

/* Return the bytes that the driver takes from the device for an allocation of this size. */
uint64_t quota_rounded(uint64_t bytes);

/* Stands in place of a CUdevice for page-locked memory of the host. Where the agent lends none, it
 * is counted without a limit. */
#define QUOTA_HOST DEVICES_MAX

/* Charge before the driver call. False: over quota, or no agent. */
bool quota_charge(int device, uint64_t bytes);

/* Count and log an out-of-memory answer, after quota_charge returned false. */
void quota_refuse(int device, uint64_t bytes);

/* Refund what was charged. */
void quota_refund(int device, uint64_t bytes);

/* Count live allocations for the page: +1 or -1. */
void quota_count(int device, int change);

/* Report the device's memory as this kernel's programs see it; UINT64_MAX where the driver shows
 * its own limit. False: there is no agent, so nothing is known. */
struct quota_view {
    uint64_t total_bytes;
    uint64_t free_bytes;
};
bool quota_view(int device, struct quota_view *view);

/* Called by the session. */
uint32_t quota_describe(struct aliquot_hello_device devices[ALIQUOT_HELLO_ENTRIES]);
void quota_registered(void);
void quota_granted(uint32_t page_index, uint64_t bytes);
void quota_recalled(const struct aliquot_credit *recall);

/* Return spare credit to the agent, because this process will not need it soon. */
void quota_return_spare(void);

/* Called in the child of a fork, to which nothing is lent. */
void quota_reset(void);

#endif
