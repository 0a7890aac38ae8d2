/* Calls whose way through a forwarder is visible: by their arguments, and by the code that runs
 * inside of them. */
#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

/* Within the call, on the caller's thread: so a program can do there what it likes. */
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *argument)
{
    (void)stream;
    function(argument);
    return CUDA_SUCCESS;
}

/* Eight arguments that are 1 to 8. */
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count,
                               CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count,
                               CUstream stream)
{
    const unsigned long long found[] = {(unsigned long long)to,         (unsigned long long)from,
                                        (unsigned long long)sizes,      count,
                                        (unsigned long long)attributes, (unsigned long long)indices,
                                        attribute_count,                (unsigned long long)stream};
    for (unsigned i = 0; i < sizeof found / sizeof *found; i++)
        if (found[i] != i + 1)
            return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* A handle of 64 bytes by value: bytes 0 to 63. */
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags)
{
    for (unsigned i = 0; i < sizeof handle.reserved; i++)
        if (handle.reserved[i] != (char)i)
            return CUDA_ERROR_INVALID_VALUE;
    *pointer = flags;
    return CUDA_SUCCESS;
}

/* One deep: as the hook's own threads use them. */
static __thread CUcontext before;

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    cuCtxGetCurrent(&before);
    return cuCtxSetCurrent(context);
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    cuCtxGetCurrent(context);
    return cuCtxSetCurrent(before);
}
