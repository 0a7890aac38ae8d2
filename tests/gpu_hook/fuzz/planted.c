/* Differences to be found: preloaded before the hook, each changes one thing that the fuzzer must see. */
#include <dlfcn.h>
#include <stdlib.h>

#include <cuda.h>

#undef cuMemFree
#undef cuEventDestroy

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

#ifdef PLANT_ANOTHER_CODE
CUresult cuEventDestroy_v2(CUevent event)
{
    CUresult (*real)(CUevent) = next("cuEventDestroy_v2");
    CUresult result = real(event);
    return result == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : result;
}
#endif

/* Frees the one before it. */
#ifdef PLANT_ANOTHER_ORDER
CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    static CUdeviceptr kept;
    CUresult (*real)(CUdeviceptr) = next("cuMemFree_v2");
    CUdeviceptr older = kept;
    if (pointer == 0 || older == 0) {
        kept = pointer;
        return pointer ? CUDA_SUCCESS : real(pointer);
    }
    kept = pointer;
    return real(older);
}
#endif

/* Loses every tenth. */
#ifdef PLANT_LOST_FREE
CUresult cuMemFreeHost(void *pointer)
{
    static unsigned calls;
    CUresult (*real)(void *) = next("cuMemFreeHost");
    CUdeviceptr on_device;
    CUresult (*ask)(CUdeviceptr *, void *, unsigned) = next("cuMemHostGetDevicePointer_v2");
    if (ask(&on_device, pointer, 0) == CUDA_SUCCESS && ++calls % 10 == 0)
        return CUDA_SUCCESS;
    return real(pointer);
}
#endif
