/* The processes on the machine, and how many bytes each holds. */
#ifndef SOFTGPU_SLOTS_H
#define SOFTGPU_SLOTS_H

#include "device/machine.h"

/* The device of the machine behind one that this process knows by its index: another, once the
 * process was restored there. Below, `device` is an index of the process. */
static inline unsigned slots_place(const struct attachment *attachment, unsigned device)
{
    return attachment->slot < 0 ? device
                                : atomic_load_explicit(&attachment->machine->slots[attachment->slot].places[device],
                                                       memory_order_relaxed);
}

int slots_join(struct attachment *attachment); /* 0, or -1 when the table is full */
/* Frees what dead processes held. Cheap when none died; never waits for a stopped lock holder. */
void slots_reap(struct attachment *attachment);
/* the same under the machine's lock; how many */
int slots_reap_locked(struct attachment *attachment);
int slots_is_dead(const struct attachment *attachment, int slot);
/* The slot of the process that joined with this number; -1 when it is gone. */
int slots_find(const struct attachment *attachment, uint64_t joined);
uint64_t slots_joined(const struct attachment *attachment); /* this process's */
/* Bytes in use on a device of the machine, by the slots: right at any instant, takes no lock. */
uint64_t slots_used(const struct machine *machine, unsigned device);
/* 0 (charged), ENOMEM, or ETIMEDOUT. */
int slots_charge(struct attachment *attachment, unsigned device, uint64_t bytes);
void slots_refund(struct attachment *attachment, unsigned device, uint64_t bytes);
/* The same for managed memory, whose room other processes may take. */
int slots_charge_managed(struct attachment *attachment, unsigned device, uint64_t bytes);
void slots_refund_managed(struct attachment *attachment, unsigned device, uint64_t bytes);
/* Takes what a charge of so many bytes lacks from the other process whose managed memory came first,
 * if that was earlier than `before`. Returns the bytes, which slots_owed tells that process;
 * 0 where the device has the room, or no other such memory. */
uint64_t slots_take_managed(struct attachment *attachment, unsigned device, uint64_t bytes, uint64_t before);
/* The bytes that others took of this process's, until it refunds as many. */
uint64_t slots_owed(const struct attachment *attachment, unsigned device);
void slots_tell_oldest(struct attachment *attachment, unsigned device, uint64_t came);
/* Counts a context of this process on a device: 0, EBUSY where the device's compute mode keeps it out,
 * or ETIMEDOUT. */
int slots_add_context(struct attachment *attachment, unsigned device);
void slots_drop_context(struct attachment *attachment, unsigned device);

#endif
