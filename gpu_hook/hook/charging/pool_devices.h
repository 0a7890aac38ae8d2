/* The device whose memory a pool gives out: a CUdevice, or QUOTA_HOST. Each call asks the
 * driver. */
#ifndef ALIQUOT_POOL_DEVICES_H
#define ALIQUOT_POOL_DEVICES_H

#include "interpose/driver.h"

/* Return the device of a pool that is made with these properties. Managed memory counts as
 * cuMemAllocManaged's does, wherever it lies. */
int pool_devices_of_location(const CUmemPoolProps *properties);

/* -1: no device's default pool. */
int pool_devices_of_default(CUmemoryPool pool);

/* The device whose current pool cuMemAllocAsync takes from; -1: no stream, or no context. */
int pool_devices_of_stream(CUstream stream);

#endif
