/* Which linear allocations can leave their device, and what their chunks of memory are like: by the kernel's residency mode
 * and by what the device offers. Allocates nothing. */
#ifndef ALIQUOT_SWAPPABILITY_H
#define ALIQUOT_SWAPPABILITY_H

#include "aliquot_protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum aliquot_residency_mode swappability_mode(void);

/* Whether an allocation of this size on this device is elastic. Needs the agent's page: ask after charging. */
bool swappability_wants(int device, size_t bytes);

/* Why an allocation that is not elastic stays: bits of enum aliquot_staying. */
uint32_t swappability_refusal(int device, size_t bytes);

/* What an elastic allocation takes from its device. */
uint64_t swappability_rounded(int device, size_t bytes);

size_t swappability_grain(int device);
size_t swappability_chunk_bytes(int device);

/* Bits of the devices that reach this one's memory, itself included. */
uint64_t swappability_peers(int device);

/* From now on allocations are plain: somebody shares memory by legacy IPC, which elastic memory cannot be. */
void swappability_stop(void);

/* In the child of a fork. */
void swappability_reset(void);

#endif
