/* What leaves the devices at a swap, and what stays. Knows addresses, handles and accesses; copies nothing, and decides
 * nothing. pieces_list to pieces_finish are called on the mover's thread alone, while calls that touch a device are
 * stopped and frees are held off. */
#ifndef ALIQUOT_EXTENTS_H
#define ALIQUOT_EXTENTS_H

#include "copy_engine/extent.h"

#include <stddef.h>
#include <stdint.h>

#define PIECES_FAILED SIZE_MAX

/* Resident: what would leave, by device and address, each with its place in the host copy. Swapped: what is out, with the
 * places that it was given then; what was freed meanwhile is missing. The caller frees *pieces. PIECES_FAILED: no memory
 * for the list, or for an address to copy through; then *pieces is NULL. */
size_t pieces_list(struct piece **pieces);

/* Unmaps and releases all of them; or leaves all of them mapped, and says why. */
CUresult pieces_take_out(const struct piece *pieces, size_t count);

/* Creates and maps all of them, with the accesses that they had; or none of them, and says why. */
CUresult pieces_bring_in(const struct piece *pieces, size_t count);

/* After a move, however it ended: lets go of what was made to copy through. */
void pieces_finish(void);

/* Bytes of the process on the device that stay there when it is swapped out; returns bits of enum aliquot_staying. */
uint32_t pieces_staying(int device, uint64_t *bytes);

/* In the child of a fork. */
void pieces_reset(void);

#endif
