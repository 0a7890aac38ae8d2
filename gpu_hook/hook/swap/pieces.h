/* What leaves the devices at a swap, and what stays. Knows addresses, handles and accesses; copies nothing, and decides
 * nothing. pieces_list to pieces_finish are called on the mover's thread alone, while calls that touch a device are
 * stopped and frees are held off. */
#ifndef ALIQUOT_PIECES_H
#define ALIQUOT_PIECES_H

#include "interpose/driver.h"

#include <stddef.h>
#include <stdint.h>

/* A range of addresses whose memory leaves as one. It may be of many chunks; a copy may cut it anywhere. */
struct piece {
    CUdeviceptr address;  /* where it can be copied while it is resident */
    size_t bytes;
    int device;           /* CUdevice */
    uint64_t host_offset; /* in the host copy, whose parts follow each other */
};

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

/* Bytes that can leave, wherever they are now; and of these, those that are out. */
uint64_t pieces_elastic_bytes(int device);
uint64_t pieces_swapped_bytes(int device);

/* Memory of this process is shared by legacy IPC: one more reason for what stays. */
void pieces_shared(void);

/* In the child of a fork. */
void pieces_reset(void);

#endif
