/* Host copies of what was swapped out: the node agent's memory files and spill files, held by descriptor and mapping, so
 * that neither the agent's death nor a program that closes descriptors loses them. Creates none, and never touches a page
 * that may not be there: an error is an errno, not a signal. */
#ifndef ALIQUOT_SEGMENTS_H
#define ALIQUOT_SEGMENTS_H

#include <stddef.h>
#include <stdint.h>

/* Takes the descriptor, whatever is returned. 0, or: EINVAL, it is smaller than `bytes`, or memory that is not populated;
 * EBUSY, a copy is kept, whose segments may not change; EMFILE, too many; or another errno. The same number again
 * replaces. */
int segments_add(int descriptor, uint32_t number, uint64_t bytes);

/* Of numbers 0 to count - 1 together; 0: not all are there. */
uint64_t segments_bytes(uint32_t count);

/* These hold the copy from now on, in their order; others are let go. Before the copy out. 0, or EINVAL: not all are
 * there. */
int segments_keep(uint32_t count);

/* Lets all go: the copy is on the devices again, or was never made. They are unmapped by segments_sweep, for that takes long:
 * calls that wait for the memory do not wait for it. */
void segments_drop(void);
void segments_sweep(void);

/* In the child of a fork, whose parent alone moves: closes what would keep the memory. Safe in a fork handler. */
void segments_leave(void);
void segments_reset(void);

/* For the mover, while a copy is kept; any thread. `offset` counts from the first byte of the first segment. Return 0 or
 * an errno. */
int segments_write(uint64_t offset, const void *from, size_t bytes);
int segments_read(uint64_t offset, void *to, size_t bytes);

#endif
