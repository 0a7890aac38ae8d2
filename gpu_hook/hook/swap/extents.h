/* The memory that leaves the devices at a swap, and the memory that stays. This module knows
 * addresses, handles and accesses; it copies nothing and decides nothing. The mover's thread
 * alone calls extents_list to extents_finish, while calls that touch a device are stopped and
 * frees are held off. */
#ifndef ALIQUOT_EXTENTS_H
#define ALIQUOT_EXTENTS_H

#include "copy_engine/extent.h"

#include <stddef.h>
#include <stdint.h>

#define EXTENTS_FAILED SIZE_MAX

/* List the extents. Of a resident process: the memory that would leave, by device and address,
 * each extent with its place in the host copy. Of a swapped one: the memory that is out, with
 * its places in the copy; extents that were freed in the meantime are missing. The caller frees
 * *extents. EXTENTS_FAILED: no memory for the list, or for an address to copy through; then
 * *extents is NULL. */
size_t extents_list(struct extent **extents);

/* Unmap and release all extents; or leave all of them mapped, and return the driver's error. */
CUresult extents_unmap(const struct extent *extents, size_t count);

/* Create and map all extents, with the accesses that they had; or none of them, and return the
 * driver's error. */
CUresult extents_map(const struct extent *extents, size_t count);

/* Called after a move, however it ended: release the addresses that were made to copy through. */
void extents_finish(void);

/* Return why memory of the process stays on the device when it is swapped out, as bits of enum
 * aliquot_pin_reason; *bytes: how much. */
uint32_t extents_pinned(int device, uint64_t *bytes);

/* Called in the child of a fork. */
void extents_reset(void);

#endif
