/* The real driver's functions that the hook itself calls. Owns nothing but pointers; one that the driver lacks
 * answers NOT_SUPPORTED, so callers never test for NULL. */
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

/* Opens the driver at first use. */
const struct driver *driver(void);

/* The same without the check, for the launch path. Valid after the first driver(); written by it alone. */
extern struct driver driver_calls __attribute__((visibility("hidden")));

#endif
