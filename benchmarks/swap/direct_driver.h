/* Included before the hook's copying sources, instead of its driver.h: they call the driver that
 * the program is linked to. */
#ifndef ALIQUOT_DRIVER_H
#define ALIQUOT_DRIVER_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#define DIRECT_CALLS(X)                                                                                           \
    X(cuCtxGetCurrent) X(cuCtxPopCurrent_v2) X(cuCtxPushCurrent_v2) X(cuCtxSetCurrent)                            \
    X(cuDevicePrimaryCtxRelease_v2) X(cuDevicePrimaryCtxRetain)                                                   \
    X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventRecord)                                                        \
    X(cuEventSynchronize) X(cuMemcpyDtoHAsync_v2) X(cuMemcpyHtoDAsync_v2) X(cuMemHostRegister_v2)                 \
    X(cuMemHostUnregister) X(cuPointerGetAttribute) X(cuStreamCreate) X(cuStreamDestroy_v2)                       \
    X(cuStreamSynchronize) X(cuThreadExchangeStreamCaptureMode)

struct driver {
#define FIELD(name) __typeof__(&name) name;
    DIRECT_CALLS(FIELD)
#undef FIELD
};

static inline const struct driver *driver(void)
{
#define VALUE(name) .name = name,
    static const struct driver calls = {DIRECT_CALLS(VALUE)};
#undef VALUE
    return &calls;
}

#endif
