/* Which device of the driver is which device of the grant: by UUID, never by number. */
#ifndef ALIQUOT_DEVICES_H
#define ALIQUOT_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

#define DEVICES_MAX 64 /* CUdevice values that the hook accounts for; the driver numbers them from 0 */

/* How many devices the driver shows to this process; 0 before the real cuInit. */
int devices_count(void);

/* False when the driver does not say. */
bool devices_uuid(int device, uint8_t uuid[16]);

/* Index in the agent's page; -1: not granted, or no agent yet. */
int devices_page_index(int device);

/* Device of the context that is current in this thread; -1: there is none. */
int devices_current(void);

/* The program has, or had, a context on the device: memory may be wanted there. */
void devices_use(int device);

/* Bits of devices that were used. One load. */
uint64_t devices_used(void);

#endif
