/* Decides which linear allocations can leave their device, and the properties of their chunks of
 * memory: by the kernel's residency mode and by the device's abilities. Allocates nothing. */
#ifndef ALIQUOT_SWAPPABILITY_H
#define ALIQUOT_SWAPPABILITY_H

#include "aliquot_protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum aliquot_residency_mode swappability_mode(void);

/* Return whether an allocation of this size on this device is swappable. Needs the agent's page, so
 * ask after charging. */
bool swappability_wants(int device, size_t bytes);

/* Return why an allocation that is not swappable stays: bits of enum aliquot_pin_reason. */
uint32_t swappability_refusal(int device, size_t bytes);

/* Return what a swappable allocation takes from its device. */
uint64_t swappability_rounded(int device, size_t bytes);

size_t swappability_grain(int device);
size_t swappability_chunk_bytes(int device);

/* Return the devices that reach this one's memory, itself included, as bits. */
uint64_t swappability_peers(int device);

/* Make all further allocations plain, because the program shares memory by legacy IPC, which
 * swappable memory does not support. */
void swappability_stop(void);

/* Called in the child of a fork. */
void swappability_reset(void);

#endif
