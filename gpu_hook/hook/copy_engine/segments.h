/* Host copies of swapped-out memory: the node agent's memory files and spill files. The hook holds
 * them by descriptor and mapping, so that neither the agent's death nor a program that closes
 * descriptors loses them. It creates none, and never touches a page that may be missing: an error
 * is an errno, not a signal. */
#ifndef ALIQUOT_SEGMENTS_H
#define ALIQUOT_SEGMENTS_H

#include <stddef.h>
#include <stdint.h>

/* Take a segment; the descriptor is taken whatever is returned. Returns 0, or: EINVAL, it is
 * smaller than `bytes`, or memory that is not populated; EBUSY, a copy is kept, and its segments
 * may not change; EMFILE, too many; or another errno. A number that is used again replaces its
 * segment. */
int segments_add(int descriptor, uint32_t number, uint64_t bytes);

/* Return the bytes of numbers 0 to count - 1 together; 0: some are missing. */
uint64_t segments_bytes(uint32_t count);

/* Let these segments hold the copy from now on, in their order, and let the others go. Called
 * before the copy out. Returns 0, or EINVAL: some are missing. */
int segments_keep(uint32_t count);

/* Let all segments go, because the copy is on the devices again, or was never made. segments_sweep
 * unmaps them, which takes long: calls that wait for the memory do not wait for it. */
void segments_drop(void);
void segments_sweep(void);

/* Called in the child of a fork: close what would keep the parent's memory. Safe in a fork
 * handler. */
void segments_leave(void);
void segments_reset(void);

/* For the mover, while a copy is kept; any thread may call. `offset` counts from the first byte of
 * the first segment. Return 0 or an errno. */
int segments_write(uint64_t offset, const void *from, size_t bytes);
int segments_read(uint64_t offset, void *to, size_t bytes);

#endif
