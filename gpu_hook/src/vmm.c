#include "vmm.h"

#include "activation.h"
#include "charge.h"
#include "gate.h"
#include "log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct mapping {
    CUdeviceptr start;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
};

/* Guarded by the mutex, which is held over the driver's call: a handle's or an address's value may be used again as
 * soon as the driver let it go. These calls take tens of microseconds, so one sorted array is not felt. */
static struct {
    pthread_mutex_t mutex;
    struct mapping *mappings; /* of handles that are charged, in ascending order of address */
    size_t count, capacity;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void vmm_reset(void)
{
    pthread_mutex_init(&state.mutex, NULL);
    state.count = 0;
}

void vmm_lock(void)
{
    pthread_mutex_lock(&state.mutex);
}

void vmm_unlock(void)
{
    pthread_mutex_unlock(&state.mutex);
}

bool vmm_begin(void)
{
    bool acts = activation_enter();
    if (acts && !gate_is_open())
        gate_pass();
    if (acts)
        vmm_lock();
    return acts;
}

CUresult vmm_end(bool acts, CUresult result)
{
    if (acts) {
        vmm_unlock();
        activation_leave();
    }
    return result;
}

/* First mapping that ends after the address. With the mutex. */
static size_t find_mapping(CUdeviceptr address)
{
    size_t low = 0, high = state.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (state.mappings[middle].start + state.mappings[middle].bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool reserve_mapping(void)
{
    if (state.count < state.capacity)
        return true;
    size_t capacity = state.capacity ? state.capacity * 2 : 64;
    struct mapping *larger = realloc(state.mappings, capacity * sizeof *larger);
    if (!larger)
        return false;
    state.mappings = larger;
    state.capacity = capacity;
    return true;
}

/* Refunds the handle when no use is left. With the mutex. False: it is not charged. */
static bool change_uses(CUmemGenericAllocationHandle handle, int references, int mappings)
{
    struct allocation allocation, replaced;
    if (!allocations_take(handle, SPACE_HANDLE, &allocation))
        return false;
    allocation.references += (uint32_t)references;
    allocation.mappings += (uint32_t)mappings;
    bool is_gone = allocation.references == 0 && allocation.mappings == 0;
    if (is_gone || !allocations_add(&allocation, &replaced))
        charge_refund(&allocation);
    return true;
}

bool vmm_change_mappings(CUmemGenericAllocationHandle handle, int change)
{
    return change_uses(handle, 0, change);
}

/* Whose quota the memory counts on. */
static int account_of(const CUmemAllocationProp *properties)
{
    return properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? properties->location.id : QUOTA_HOST;
}

static bool is_bad_request(const CUmemGenericAllocationHandle *handle, size_t bytes,
                           const CUmemAllocationProp *properties, unsigned long long flags)
{
    size_t grain = 0;
    return !handle || flags ||
           driver()->cuMemGetAllocationGranularity(&grain, properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
               CUDA_SUCCESS ||
           (grain && bytes % grain);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                     unsigned long long flags)
{
    if (!properties)
        return driver()->cuMemCreate(handle, bytes, properties, flags);
    struct charge charge;
    CUresult result = charge_begin(&charge, account_of(properties), bytes,
                                   is_bad_request(handle, bytes, properties, flags));
    if (result != CUDA_SUCCESS)
        return result;
    result = driver()->cuMemCreate(handle, bytes, properties, flags);
    if (charge.acts)
        pthread_mutex_lock(&state.mutex);
    bool is_recorded = charge_end(&charge, result, result == CUDA_SUCCESS ? *handle : 0, ALLOCATION_HANDLE);
    if (charge.acts)
        pthread_mutex_unlock(&state.mutex);
    if (is_recorded)
        return result;
    driver()->cuMemRelease(*handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Memory of whoever created it, who is charged. When that is this process, it may be one more use of its handle. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
                                        CUmemAllocationHandleType type)
{
    bool acts = vmm_begin();
    CUresult result = driver()->cuMemImportFromShareableHandle(handle, os_handle, type);
    if (acts && result == CUDA_SUCCESS)
        change_uses(*handle, 1, 0);
    return vmm_end(acts, result);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    bool acts = vmm_begin();
    CUresult result = driver()->cuMemRelease(handle);
    if (acts && result == CUDA_SUCCESS)
        change_uses(handle, -1, 0);
    return vmm_end(acts, result);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    bool acts = vmm_begin();
    CUresult result = driver()->cuMemRetainAllocationHandle(handle, address);
    if (acts && result == CUDA_SUCCESS)
        change_uses(*handle, 1, 0);
    return vmm_end(acts, result);
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    bool acts = vmm_begin();
    if (acts && !reserve_mapping()) {
        LOG("event=no_memory_for_record key=%llx", (unsigned long long)pointer);
        return vmm_end(acts, CUDA_ERROR_OUT_OF_MEMORY);
    }
    CUresult result = driver()->cuMemMap(pointer, bytes, offset, handle, flags);
    if (acts && result == CUDA_SUCCESS && change_uses(handle, 0, 1)) {
        size_t place = find_mapping(pointer);
        memmove(&state.mappings[place + 1], &state.mappings[place],
                (state.count - place) * sizeof *state.mappings);
        state.mappings[place] = (struct mapping){pointer, bytes, handle};
        state.count++;
    }
    return vmm_end(acts, result);
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
    bool acts = vmm_begin();
    CUresult result = driver()->cuMemUnmap(pointer, bytes);
    if (acts && result == CUDA_SUCCESS) {
        size_t first = find_mapping(pointer), last = first;
        while (last < state.count && state.mappings[last].start < pointer + bytes)
            change_uses(state.mappings[last++].handle, 0, -1);
        memmove(&state.mappings[first], &state.mappings[last], (state.count - last) * sizeof *state.mappings);
        state.count -= last - first;
    }
    return vmm_end(acts, result);
}
