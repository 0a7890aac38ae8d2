/* Names and texts of error codes. */
#include <stddef.h>

#include "implemented.h"

#define ERRORS(X)                                                                                                      \
    X(CUDA_SUCCESS, "no error")                                                                                        \
    X(CUDA_ERROR_INVALID_VALUE, "invalid argument")                                                                    \
    X(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                                                       \
    X(CUDA_ERROR_NOT_INITIALIZED, "initialization error")                                                              \
    X(CUDA_ERROR_DEINITIALIZED, "driver shutting down")                                                                \
    X(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library")                                                        \
    X(CUDA_ERROR_DEVICE_UNAVAILABLE, "the device is busy or unavailable")                                              \
    X(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")                                                      \
    X(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")                                                             \
    X(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid")                                                      \
    X(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                                                            \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device")                        \
    X(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed")                                                          \
    X(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "invalid resource type or configuration")                                  \
    X(CUDA_ERROR_INVALID_SOURCE, "device kernel image is invalid")                                                     \
    X(CUDA_ERROR_FILE_NOT_FOUND, "file not found")                                                                     \
    X(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS")                             \
    X(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")                                                            \
    X(CUDA_ERROR_NOT_FOUND, "named symbol not found")                                                                  \
    X(CUDA_ERROR_NOT_READY, "device not ready")                                                                        \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")                                          \
    X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch")                                   \
    X(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated")                                            \
    X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped")        \
    X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region")              \
    X(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")                                                          \
    X(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch")                                \
    X(CUDA_ERROR_NOT_PERMITTED, "operation not permitted")                                                             \
    X(CUDA_ERROR_NOT_SUPPORTED, "operation not supported")                                                             \
    X(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized")                                                       \
    X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination")            \
    X(CUDA_ERROR_UNKNOWN, "unknown error")

struct description {
    CUresult code;
    const char *name, *text;
};

static const struct description *describe(CUresult error)
{
#define ROW(code, text) {code, #code, text},
    static const struct description table[] = {ERRORS(ROW)};
#undef ROW
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].code == error)
            return &table[i];
    return NULL;
}

CUresult impl_cuGetErrorName(CUresult error, const char **pStr)
{
    const struct description *found = describe(error);
    if (pStr == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pStr = found ? found->name : NULL;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuGetErrorString(CUresult error, const char **pStr)
{
    const struct description *found = describe(error);
    if (pStr == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pStr = found ? found->text : NULL;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
