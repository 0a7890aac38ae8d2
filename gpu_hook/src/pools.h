/* Which device's memory a stream-ordered allocation takes: that of its pool or of its stream, whatever context is
 * current. Remembers the pools that this process made. */
#ifndef ALIQUOT_POOLS_H
#define ALIQUOT_POOLS_H

#include "driver.h"

/* Of the pool; CHARGE_NOTHING for one of host memory; the stream's where the pool is not known. */
int pools_device(CUmemoryPool pool, CUstream stream);

/* Of the stream, whose current pool cuMemAllocAsync takes from; CHARGE_CURRENT where the driver does not tell. */
int pools_stream_device(CUstream stream);

/* In the child of a fork. */
void pools_reset(void);

#endif
