/* Who is on the machine, and how many bytes each holds. */
#ifndef SOFTGPU_SLOTS_H
#define SOFTGPU_SLOTS_H

#include "device/machine.h"

int slots_join(struct seat *seat); /* 0, or -1 when the table is full */
/* Frees what dead processes held. Cheap when nobody died; never waits for a stopped lock holder. */
void slots_reap(struct seat *seat);
int slots_reap_locked(struct seat *seat); /* the same under the machine's lock; how many */
int slots_is_dead(const struct seat *seat, int slot);
/* The slot of the process whose joining it was; -1 when that is gone. */
int slots_find(const struct seat *seat, uint64_t joined);
uint64_t slots_joined(const struct seat *seat); /* this process's */
/* Bytes in use on a device, by the slots: right at any instant, takes no lock. */
uint64_t slots_used(const struct machine *machine, unsigned device);
/* 0 (charged), ENOMEM, or ETIMEDOUT. */
int slots_charge(struct seat *seat, unsigned device, uint64_t bytes);
void slots_refund(struct seat *seat, unsigned device, uint64_t bytes);

#endif
