/* The real driver's functions that the hook itself calls. One that the driver lacks answers NOT_SUPPORTED, so callers
 * never test for NULL. */
#ifndef ALIQUOT_DRIVER_H
#define ALIQUOT_DRIVER_H

/* With this macro cuda.h declares every variant under its exported name, so the compiler checks our prototypes. */
#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
/* An inline function in cuda.h, an export in the driver. */
CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **pfn, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *status);
#pragma GCC visibility pop

struct driver {
#define CALLED(name) __typeof__(&name) name;
#define REPLACED(name) __typeof__(&name) name;
#include "driver_calls.h"
};

/* Each by itself: real_NAME is generated, opens the driver at the first call of all, and jumps through the table. */
#define CALLED(name) extern __typeof__(name) real_##name __attribute__((visibility("hidden")));
#define REPLACED(name) CALLED(name)
#include "driver_calls.h"

/* In each file anew, so that the compiler sees through it and calls directly. */
static const struct driver driver_calls = {
#define CALLED(name) .name = real_##name,
#define REPLACED(name) CALLED(name)
#include "driver_calls.h"
};

static inline const struct driver *driver(void)
{
    return &driver_calls;
}

#endif
