#include "pools.h"

#include "activation.h"
#include "charge.h"
#include "devices.h"

#include <pthread.h>
#include <stdlib.h>

struct pool {
    struct pool *next;
    CUmemoryPool handle;
    int device; /* or CHARGE_NOTHING */
};

static struct { /* guarded by the mutex, which is held over calls that make or end a pool: handles are used again */
    pthread_mutex_t mutex;
    struct pool *all; /* a program has a few: those it made, and each device's default one when it was met */
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void pools_reset(void)
{
    pthread_mutex_init(&state.mutex, NULL);
    while (state.all) {
        struct pool *pool = state.all;
        state.all = pool->next;
        free(pool);
    }
}

/* With the mutex. */
static struct pool **find(CUmemoryPool handle)
{
    struct pool **link = &state.all;
    while (*link && (*link)->handle != handle)
        link = &(*link)->next;
    return link;
}

/* With the mutex. Without memory for it the pool is one that we do not know. */
static void remember(CUmemoryPool handle, int device)
{
    struct pool **link = find(handle);
    if (!*link && !(*link = calloc(1, sizeof **link)))
        return;
    (*link)->handle = handle;
    (*link)->device = device;
}

/* Managed memory counts as cuMemAllocManaged's does, wherever it lies now. */
static int location_of(const CUmemPoolProps *properties)
{
    if (properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        return properties->location.id;
    return properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED ? CHARGE_NOTHING : CHARGE_CURRENT;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    if (!activation_enter())
        return driver()->cuMemPoolCreate(pool, properties);
    pthread_mutex_lock(&state.mutex);
    CUresult result = driver()->cuMemPoolCreate(pool, properties);
    if (result == CUDA_SUCCESS)
        remember(*pool, location_of(properties));
    pthread_mutex_unlock(&state.mutex);
    activation_leave();
    return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    if (!activation_enter())
        return driver()->cuMemPoolDestroy(pool);
    pthread_mutex_lock(&state.mutex);
    CUresult result = driver()->cuMemPoolDestroy(pool);
    struct pool **link = find(pool);
    struct pool *gone = *link;
    if (result == CUDA_SUCCESS && gone) {
        *link = gone->next;
        free(gone);
    }
    pthread_mutex_unlock(&state.mutex);
    activation_leave();
    return result;
}

/* With the mutex: default pools are not made by a call that we see. */
static void meet_default(CUmemoryPool handle)
{
    CUmemoryPool found;
    for (int device = 0; device < devices_count(); device++)
        if (driver()->cuDeviceGetDefaultMemPool(&found, device) == CUDA_SUCCESS && found == handle)
            return remember(handle, device);
    CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
    if (driver()->cuMemGetDefaultMemPool(&found, &host, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_SUCCESS &&
        found == handle)
        remember(handle, CHARGE_NOTHING);
}

int pools_device(CUmemoryPool handle, CUstream stream)
{
    if (!activation_enter())
        return CHARGE_CURRENT;
    pthread_mutex_lock(&state.mutex);
    if (!*find(handle))
        meet_default(handle);
    struct pool *pool = *find(handle);
    int device = pool ? pool->device : CHARGE_CURRENT;
    pthread_mutex_unlock(&state.mutex);
    activation_leave();
    return pool ? device : pools_stream_device(stream);
}

/* Drivers before 12.8 tell a stream's context only. */
int pools_stream_device(CUstream stream)
{
    CUdevice device;
    CUcontext context, current = NULL;
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return CHARGE_CURRENT;
    if (driver()->cuStreamGetDevice(stream, &device) == CUDA_SUCCESS)
        return device;
    if (driver()->cuStreamGetCtx(stream, &context) != CUDA_SUCCESS ||
        driver()->cuCtxGetCurrent(&current) != CUDA_SUCCESS || context == current ||
        driver()->cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return CHARGE_CURRENT;
    device = devices_current();
    driver()->cuCtxPopCurrent_v2(&context);
    return device < 0 ? CHARGE_CURRENT : device;
}
