/* Memory pools: names for streams of allocations. Memory is taken at the call and returned when the stream reaches the
 * free; a pool keeps nothing back. */
#ifndef SOFTGPU_POOLS_H
#define SOFTGPU_POOLS_H

#include <stdint.h>

struct pool;

/* 1 if frees were pending on the device and are done now: room may have come. */
int pools_wait_for_frees(unsigned physical);
void pool_count(struct pool *pool, int64_t bytes); /* NULL is no pool */

#endif
