#include "charging/pool_devices.h"

#include "accounting/devices.h"
#include "accounting/quota.h"

int pool_devices_of_location(const CUmemPoolProps *properties)
{
    if (properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        return properties->location.id;
    if (properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED)
        return QUOTA_HOST;
    int current = devices_current();
    return current < 0 ? 0 : current;
}

int pool_devices_of_default(CUmemoryPool pool)
{
    CUmemoryPool found;
    for (int device = 0; device < devices_count(); device++)
        if (driver()->cuDeviceGetDefaultMemPool(&found, device) == CUDA_SUCCESS && found == pool)
            return device;
    CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
    bool is_host = driver()->cuMemGetDefaultMemPool(&found, &host, CU_MEM_ALLOCATION_TYPE_PINNED) ==
                       CUDA_SUCCESS &&
                   found == pool;
    return is_host ? QUOTA_HOST : -1;
}

/* Drivers before 12.8 tell a stream's context only. */
int pool_devices_of_stream(CUstream stream)
{
    CUdevice device;
    CUcontext context, current = NULL;
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return devices_current();
    if (driver()->cuStreamGetDevice(stream, &device) == CUDA_SUCCESS)
        return device;
    if (driver()->cuStreamGetCtx(stream, &context) != CUDA_SUCCESS)
        return -1;
    if (driver()->cuCtxGetCurrent(&current) != CUDA_SUCCESS || context == current ||
        driver()->cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return devices_current();
    device = devices_current();
    driver()->cuCtxPopCurrent_v2(&context);
    return device;
}
