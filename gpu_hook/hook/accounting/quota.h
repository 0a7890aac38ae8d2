/* Byte credit: what the agent lent this process on each device and of the host's page-locked memory, and how much of
 * it is charged. Every byte lent is either charged or spare; nothing is charged that was not lent first. */
#ifndef ALIQUOT_QUOTA_H
#define ALIQUOT_QUOTA_H

#include "accounting/devices.h"
#include "agent_link/session.h"

#include <stdbool.h>
#include <stdint.h>

/* What the driver takes from the device for an allocation of this many bytes. */
uint64_t quota_rounded(uint64_t bytes);

/* In place of a CUdevice: page-locked memory of the host. Where the agent lends none it is counted without a limit. */
#define QUOTA_HOST DEVICES_MAX

/* Charges before the driver call. False: over quota, or no agent. */
bool quota_charge(int device, uint64_t bytes);

/* Counts and logs that a program is told out of memory, after quota_charge returned false. */
void quota_refuse(int device, uint64_t bytes);

/* Gives back what was charged. */
void quota_refund(int device, uint64_t bytes);

/* Counts live allocations for the page: +1 or -1. */
void quota_count(int device, int change);

/* What this kernel's programs see of a device; UINT64_MAX where the driver shows its own limit. False: no agent, nothing
 * is known. */
struct quota_view {
    uint64_t total_bytes;
    uint64_t free_bytes;
};
bool quota_view(int device, struct quota_view *view);

/* The session's questions about the quota; `tick` is launch.c's. */
uint32_t quota_describe(struct aliquot_hello_device devices[ALIQUOT_HELLO_ENTRIES]);
void quota_registered(void);
void quota_granted(uint32_t page_index, uint64_t bytes);
void quota_recalled(const struct aliquot_credit *recall);

/* What is lent and not charged goes back: this process will not need it soon. */
void quota_return_spare(void);

/* In the child of a fork: nothing is lent. */
void quota_reset(void);

#endif
