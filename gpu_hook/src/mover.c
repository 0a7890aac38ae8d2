#include "mover.h"

#include "driver.h"

int mover_copy(const struct piece *pieces, size_t count, enum mover_direction direction, struct mover_timing *timing)
{
    *timing = (struct mover_timing){.failed_step = count ? "copying is not built in" : NULL};
    return count ? CUDA_ERROR_NOT_SUPPORTED : 0;
}
