/* The devices of the grant among those of the driver: matched by UUID, never by number. A device
 * that was matched once is the one in its place from then on, also after a move. */
#ifndef ALIQUOT_DEVICES_H
#define ALIQUOT_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

/* CUdevice values that the hook accounts for; the driver numbers them from 0 */
#define DEVICES_MAX 64

/* Return how many devices the driver shows to this process; 0 before the real cuInit. */
int devices_count(void);

/* The UUID as in the agent's page. False: the driver does not answer. */
bool devices_uuid(int device, uint8_t uuid[16]);

/* Return the device's index in the agent's page; -1: not granted, or no agent yet. */
int devices_page_index(int device);

/* The agent's page is there: find the devices in it. */
void devices_registered(void);

/* Return the device of the context that is current in this thread; -1: there is none. */
int devices_current(void);

/* Note that the program has, or had, a context on the device: it may need memory there. */
void devices_use(int device);

/* Return the devices that were used, as bits, by one load. */
uint64_t devices_used(void);

#endif
