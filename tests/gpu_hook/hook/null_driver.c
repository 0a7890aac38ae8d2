/* A driver with nothing behind it: memory is a counter, a launch is a counter. For tests of the shim that need a
 * driver with a known state, and for measuring what the shim itself costs. NULL_DRIVER_BYTES sets each device's size. */
#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "null_driver.h"

#define DEVICES 2
#define SLOTS 65536
#define HANDLES 64

struct handle {
    unsigned references, mappings;
};

struct mapping {
    CUdeviceptr start;
    size_t bytes;
    CUmemGenericAllocationHandle handle; /* 0: free */
};

static struct {
    pthread_mutex_t mutex;
    size_t used[DEVICES];
    size_t bytes[SLOTS];
    unsigned char device[SLOTS];
    unsigned next;
    struct handle handles[HANDLES];
    struct mapping mappings[HANDLES];
    unsigned long long launches;
    int is_ready;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static __thread CUcontext current;
static char contexts[DEVICES];

static size_t capacity(void)
{
    const char *text = getenv("NULL_DRIVER_BYTES");
    return text ? strtoull(text, NULL, 10) : (size_t)1 << 30;
}

static int current_device(void)
{
    return current ? (int)((char *)current - contexts) : -1;
}

int null_device(void)
{
    return current_device();
}

int null_take(int device, size_t bytes)
{
    pthread_mutex_lock(&state.mutex);
    int fits = state.used[device] + bytes <= capacity();
    if (fits)
        state.used[device] += bytes;
    pthread_mutex_unlock(&state.mutex);
    return fits ? 0 : -1;
}

void null_give(int device, size_t bytes)
{
    pthread_mutex_lock(&state.mutex);
    state.used[device] -= bytes;
    pthread_mutex_unlock(&state.mutex);
}

CUresult cuInit(unsigned int flags)
{
    state.is_ready = 1;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    *count = DEVICES;
    return state.is_ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return ordinal >= 0 && ordinal < DEVICES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* Device i is made of bytes of value 0x10 + i. */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    memset(uuid->bytes, 0x10 + device, sizeof uuid->bytes);
    return device >= 0 && device < DEVICES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    *context = (CUcontext)(contexts + device);
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    *context = current;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    if (!current)
        return CUDA_ERROR_INVALID_CONTEXT;
    *device = current_device();
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    int device = current_device();
    if (device < 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&state.mutex);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (state.used[device] + bytes <= capacity()) {
        while (state.bytes[state.next % SLOTS])
            state.next++;
        unsigned slot = state.next++ % SLOTS;
        state.bytes[slot] = bytes;
        state.device[slot] = (unsigned char)device;
        state.used[device] += bytes;
        *pointer = ((CUdeviceptr)slot + 1) << 32;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&state.mutex);
    return result;
}

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
    return cuMemAlloc_v2(pointer, bytes);
}

CUresult cuMemGetAllocationGranularity(size_t *grain, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags flags)
{
    *grain = (size_t)2 << 20;
    return properties->type == CU_MEM_ALLOCATION_TYPE_PINNED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Handles are their slot + 1; a handle's memory goes with its last reference and its last mapping. */
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                     unsigned long long flags)
{
    if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED || bytes % ((size_t)2 << 20))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned slot = 0; slot < HANDLES; slot++)
        if (!state.handles[slot].references && !state.handles[slot].mappings) {
            state.handles[slot] = (struct handle){.references = 1};
            *handle = slot + 1;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    if (!handle || handle > HANDLES || !state.handles[handle - 1].references)
        return CUDA_ERROR_INVALID_VALUE;
    state.handles[handle - 1].references--;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags)
{
    *pointer = (CUdeviceptr)1 << 46;
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    for (unsigned slot = 0; slot < HANDLES; slot++)
        if (!state.mappings[slot].handle) {
            state.mappings[slot] = (struct mapping){pointer, bytes, handle};
            state.handles[handle - 1].mappings++;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
    for (unsigned slot = 0; slot < HANDLES; slot++) {
        struct mapping *mapping = &state.mappings[slot];
        if (mapping->handle && mapping->start >= pointer && mapping->start < pointer + bytes) {
            state.handles[mapping->handle - 1].mappings--;
            mapping->handle = 0;
        }
    }
    return CUDA_SUCCESS;
}

void null_map(unsigned long long handle)
{
    state.handles[handle - 1].mappings++;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    CUdeviceptr wanted = (CUdeviceptr)address;
    for (unsigned slot = 0; slot < HANDLES; slot++) {
        const struct mapping *mapping = &state.mappings[slot];
        if (mapping->handle && mapping->start <= wanted && wanted < mapping->start + mapping->bytes) {
            state.handles[mapping->handle - 1].references++;
            *handle = mapping->handle;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    if (!pointer)
        return CUDA_SUCCESS;
    unsigned slot = (unsigned)(pointer >> 32) - 1;
    pthread_mutex_lock(&state.mutex);
    CUresult result = slot < SLOTS && state.bytes[slot] ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        state.used[state.device[slot]] -= state.bytes[slot];
        state.bytes[slot] = 0;
    }
    pthread_mutex_unlock(&state.mutex);
    return result;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    int device = current_device();
    if (device < 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    *total_bytes = capacity();
    *free_bytes = capacity() - state.used[device];
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    *bytes = capacity();
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                        CUstream stream, void **parameters, void **extra)
{
    state.launches++;
    return CUDA_SUCCESS;
}

/* Takes a float and an int: shows that a forwarder keeps vector registers. */
CUresult cuParamSetf(CUfunction function, int offset, float value)
{
    return offset == 7 && value == 2.5f ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Counts what passed a gate: a copy moves nothing. */
CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    state.launches++;
    return to == 1 && from == 2 && bytes == 3 && stream == (CUstream)4 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return cuMemcpyDtoDAsync_v2_ptsz(to, from, bytes, stream);
}

CUresult cuCheckpointProcessGetState(int pid, CUprocessState *found)
{
    return CUDA_SUCCESS;
}

/* A function that is handed out and not exported, as new drivers have. */
static CUresult answer_unknown(void)
{
    return CUDA_ERROR_ILLEGAL_STATE;
}

static CUresult answer_mystery(void)
{
    return CUDA_ERROR_ILLEGAL_STATE;
}

/* Twenty arguments of the kinds that travel by registers and by the stack: their sum is the answer. */
static CUresult add_mysteries(int a, double b, long c, float d, int e, int f, int g, int h, double i, double j, double k,
                              double l, double m, double n, double o, int p, int q, int r, long s, double t)
{
    double sum = a + b + (double)c + d + e + f + g + h + i + j + k + l + m + n + o + p + q + r + (double)s + t;
    return (CUresult)sum;
}

/* An export that no table names, and a debugger's word, which is no function. */
CUresult cuMysteryExport(void)
{
    return CUDA_ERROR_ILLEGAL_STATE;
}
int cudbgMystery = 7;

/* More functions than the shim has spare forwarders: cuMystery10 to cuMystery79, each its own number as an answer. */
#define MYSTERY(tens, ones) static CUresult answer_##tens##ones(void) { return (CUresult)(10 * tens + ones); }
#define EACH(do, tens) do(tens, 0) do(tens, 1) do(tens, 2) do(tens, 3) do(tens, 4) do(tens, 5) do(tens, 6) do(tens, 7) \
    do(tens, 8) do(tens, 9)
#define ALL(do) EACH(do, 1) EACH(do, 2) EACH(do, 3) EACH(do, 4) EACH(do, 5) EACH(do, 6) EACH(do, 7)
ALL(MYSTERY)

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    static const struct {
        const char *name;
        void *function;
    } table[] = {{"cuMemAlloc", (void *)cuMemAlloc_v2},
                 {"cuMemFree", (void *)cuMemFree_v2},
                 {"cuInit", (void *)cuInit},
                 {"cuLaunchKernel", (void *)cuLaunchKernel},
                 {"cuDeviceGetCount", (void *)cuDeviceGetCount},
                 {"cuGetProcAddress", (void *)cuGetProcAddress_v2},
                 {"cuSubgridCreate", (void *)answer_unknown},
                 {"cuMysteryAdd", (void *)add_mysteries},
#define ROW(tens, ones) {"cuMystery" #tens #ones, (void *)answer_##tens##ones},
                 ALL(ROW)
                 {"cuMysteryCreate", (void *)answer_mystery}};
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, symbol) == 0) {
            *function = table[i].function;
            if (status)
                *status = CU_GET_PROC_ADDRESS_SUCCESS;
            return CUDA_SUCCESS;
        }
    *function = NULL;
    if (status)
        *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}
