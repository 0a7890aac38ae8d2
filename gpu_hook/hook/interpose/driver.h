/* The real driver's functions that the hook itself calls. One that the driver lacks answers
 * NOT_SUPPORTED, so callers never test for NULL. */
#ifndef ALIQUOT_DRIVER_H
#define ALIQUOT_DRIVER_H

/* With this macro cuda.h declares every variant under its exported name, so the compiler checks our
 * prototypes. */
#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
/* An inline function in cuda.h, an export in the driver. */
CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **pfn, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *status);
/* These functions name memory by handles, so the hook stands before them; headers before their
 * release lack them. */
#if CUDA_VERSION < 13010
CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t at,
                               CUmemGenericAllocationHandle memory, size_t offset, size_t bytes,
                               unsigned long long flags);
CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t at,
                                CUdeviceptr pointer, size_t bytes, unsigned long long flags);
#endif
#if CUDA_VERSION < 13030
typedef cuuint32_t CUlogicalEndpointId;
CUresult cuLogicalEndpointBindMem(CUlogicalEndpointId endpoint, CUdevice device, cuuint64_t at,
                                  CUmemGenericAllocationHandle memory, cuuint64_t offset,
                                  cuuint64_t bytes, unsigned long long flags);
CUresult cuLogicalEndpointBindAddr(CUlogicalEndpointId endpoint, CUdevice device, cuuint64_t at,
                                   void *pointer, cuuint64_t bytes, unsigned long long flags);
#endif
#pragma GCC visibility pop

struct driver {
#define CALLED(name) __typeof__(&name) name;
#define REPLACED(name) __typeof__(&name) name;
#include "driver_calls.h"
};

/* Each by itself: real_NAME is generated; the first call of all opens the driver, and each jumps
 * through the table. */
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
