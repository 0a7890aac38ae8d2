/* Memory limits of the driver: soft and hard bytes of a cgroup on a device. The hard one holds
 * for all processes in the cgroup and below it together; the soft one is kept and reported, but
 * evicts nothing here. */
#ifndef SOFTGPU_LIMITS_H
#define SOFTGPU_LIMITS_H

#include "device/machine.h"

struct limits_reading {
    uint64_t soft, hard, used;
};

/* 0; an errno when the cgroup's folder cannot be opened; ENOSPC: the table is full; ETIMEDOUT.
 * Soft 0 and hard MACHINE_NO_LIMIT clear. */
int limits_set(struct attachment *attachment, unsigned device, const char *path, uint64_t soft, uint64_t hard);
/* 0, or an errno as above. `used` is true where no limit is set, too. */
int limits_get(struct attachment *attachment, unsigned device, const char *path, struct limits_reading *reading);

/* The view that this process has of a device: the limit on its own cgroup, or the whole device. A
 * limit on a cgroup above is enforced, not shown. */
struct limits_view {
    uint64_t total_bytes, used_bytes, free_bytes;
};
struct limits_view limits_view(struct attachment *attachment, unsigned device);

#endif
