/* Handles and their mappings, as a program sees them: a program's handle may be a name of ours
 * (handles.h), and memory that is out looks as it did. */
#include "vmm/vmm.h"

#include "base/guard.h"
#include "charging/charge.h"
#include "accounting/nccl.h"
#include "swappable/swappable.h"
#include "gate/gate.h"
#include "vmm/handles.h"
#include "base/log.h"
#include "copy_engine/mover.h"
#include "agent_link/page.h"
#include "gate/residency.h"
#include "charging/retry.h"

#include <pthread.h>

static struct {
    pthread_mutex_t mutex; /* handles.h says what it guards */
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void vmm_reset(void)
{
    pthread_mutex_init(&state.mutex, NULL);
    handles_reset();
}

void vmm_lock(void)
{
    pthread_mutex_lock(&state.mutex);
}

void vmm_unlock(void)
{
    pthread_mutex_unlock(&state.mutex);
}

bool vmm_begin(bool *acts)
{
    *acts = guard_enter();
    if (!*acts)
        return true;
    if (!residency_enter()) {
        guard_leave();
        return false;
    }
    vmm_lock();
    return true;
}

bool vmm_hold(bool *is_resident)
{
    bool acts = guard_enter();
    *is_resident = true;
    if (acts) {
        *is_resident = residency_hold();
        vmm_lock();
    }
    return acts;
}

CUresult vmm_end(bool acts, CUresult result)
{
    if (acts) {
        vmm_unlock();
        residency_leave();
        guard_leave();
    }
    return result;
}

CUmemGenericAllocationHandle vmm_real(CUmemGenericAllocationHandle name, struct handle **handle)
{
    *handle = handles_find(name);
    return *handle ? (*handle)->real : name;
}

/* Return the device whose quota the memory counts on. */
static int account_of(const CUmemAllocationProp *properties)
{
    return properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? properties->location.id
                                                                    : QUOTA_HOST;
}

static bool is_bad_request(const CUmemGenericAllocationHandle *handle, size_t bytes,
                           const CUmemAllocationProp *properties, unsigned long long flags)
{
    size_t grain = 0;
    return !handle || flags ||
           driver()->cuMemGetAllocationGranularity(
               &grain, properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
           (grain && bytes % grain);
}

/* With the lock. NULL: no memory for the record. */
static struct handle *record(const struct charge *charge, CUmemGenericAllocationHandle real,
                             size_t bytes, const CUmemAllocationProp *properties, bool is_nccls)
{
    uint32_t mode = __atomic_load_n(&page_agent()->residency_mode, __ATOMIC_RELAXED);
    bool is_named = charge->acts && mode == ALIQUOT_RESIDENCY_VMM;
    struct handle *handle =
        handles_add(real, bytes, properties, is_named,
                    is_named && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    if (!handle)
        LOG("event=no_memory_for_record key=%llx", (unsigned long long)real);
    else if (is_nccls && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        handle->pin_reasons = ALIQUOT_PIN_NCCL; /* nothing is counted yet */
    return handle;
}

/* Prepare what a copy of the memory needs of the device, before the memory is made. */
static CUresult prepare_to_leave(const struct charge *charge, const CUmemAllocationProp *properties)
{
    bool may_leave =
        charge->acts && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
        __atomic_load_n(&page_agent()->residency_mode, __ATOMIC_RELAXED) == ALIQUOT_RESIDENCY_VMM;
    return may_leave ? mover_prepare(properties->location.id) : CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags)
{
    if (!properties)
        return driver()->cuMemCreate(handle, bytes, properties, flags);
    struct charge charge;
    CUresult result = charge_begin(&charge, account_of(properties), bytes,
                                   is_bad_request(handle, bytes, properties, flags));
    if (result != CUDA_SUCCESS)
        return result;
    struct retry retry = RETRY_NONE;
    do {
        result = prepare_to_leave(&charge, properties);
        if (result == CUDA_SUCCESS)
            result = driver()->cuMemCreate(handle, bytes, properties, flags);
    }
    while (retry_is_due(&retry, &charge, result, bytes));
    if (!charge.acts)
        return result;
    bool is_nccls = nccl_calls(__builtin_return_address(0));
    vmm_lock();
    struct handle *made =
        result == CUDA_SUCCESS ? record(&charge, *handle, bytes, properties, is_nccls) : NULL;
    CUmemGenericAllocationHandle real = made ? made->real : result == CUDA_SUCCESS ? *handle : 0;
    if (made) {
        *handle = made->name.start;
        charge.pin_reasons = made->pin_reasons;
    }
    bool has_failed = result == CUDA_SUCCESS && !made;
    bool is_recorded = charge_end(&charge, has_failed ? CUDA_ERROR_OUT_OF_MEMORY : result,
                                  made ? made->name.start : 0, ALLOCATION_HANDLE);
    has_failed |= made && !is_recorded && !made->is_named;
    if (made && !is_recorded)
        handles_change(made, -1, 0); /* releases the driver's, if it has a name */
    vmm_unlock();
    if (has_failed)
        driver()->cuMemRelease(real);
    return has_failed || !is_recorded ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* Imported memory is charged to the process that created it. Where that is this process, the import
 * may be one more use of its handle. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
                                        CUmemAllocationHandleType type)
{
    bool acts;
    if (!vmm_begin(&acts))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = driver()->cuMemImportFromShareableHandle(handle, os_handle, type);
    struct handle *own = acts && result == CUDA_SUCCESS ? handles_of_real(*handle) : NULL;
    if (own) {
        if (own->is_named)
            driver()->cuMemRelease(own->real);
        handles_change(own, 1, 0);
        *handle = own->name.start;
    }
    return vmm_end(acts, result);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle name)
{
    bool is_resident, acts = vmm_hold(&is_resident);
    struct handle *handle = acts ? handles_find(name) : NULL;
    CUresult result = CUDA_SUCCESS;
    if (!handle || !handle->is_named)
        result = driver()->cuMemRelease(name);
    else if (!handle->references)
        result = CUDA_ERROR_INVALID_VALUE;
    if (handle && result == CUDA_SUCCESS)
        handles_change(handle, -1, 0);
    return vmm_end(acts, result);
}

/* Swappable memory has no handle that a program may have, as cuMemAlloc's has none. */
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *name, void *address)
{
    struct swappable_view view;
    bool is_resident, acts = vmm_hold(&is_resident);
    struct mapping *mapping = acts && name ? handles_mapping_at((CUdeviceptr)address) : NULL;
    if (!mapping && acts && swappable_is_used() && swappable_find((CUdeviceptr)address, &view))
        return vmm_end(acts, CUDA_ERROR_INVALID_VALUE);
    CUresult result = CUDA_SUCCESS;
    if (mapping && mapping->handle->is_named)
        *name = mapping->handle->name.start;
    else
        result = driver()->cuMemRetainAllocationHandle(name, address);
    if (mapping && result == CUDA_SUCCESS)
        handles_change(mapping->handle, 1, 0);
    return vmm_end(acts, result);
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                                CUmemGenericAllocationHandle name)
{
    bool is_resident, acts = vmm_hold(&is_resident);
    const struct handle *handle = acts ? handles_find(name) : NULL;
    if (!handle || !handle->is_named)
        return vmm_end(acts, driver()->cuMemGetAllocationPropertiesFromHandle(properties, name));
    if (!properties || !handle->references)
        return vmm_end(acts, CUDA_ERROR_INVALID_VALUE);
    if (is_resident)
        return vmm_end(acts,
                       driver()->cuMemGetAllocationPropertiesFromHandle(properties, handle->real));
    *properties = handle->reported;
    return vmm_end(acts, CUDA_SUCCESS);
}

/* The holder of the descriptor holds this very memory, so it cannot leave any more. */
CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle name,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    struct handle *handle = NULL;
    bool acts;
    if (!vmm_begin(&acts))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUmemGenericAllocationHandle real = acts ? vmm_real(name, &handle) : name;
    if (handle && handle->is_named && !handle->references)
        return vmm_end(acts, CUDA_ERROR_INVALID_VALUE);
    CUresult result = driver()->cuMemExportToShareableHandle(shareable, real, type, flags);
    if (handle && result == CUDA_SUCCESS)
        handles_hold(handle, ALIQUOT_PIN_EXPORTED);
    return vmm_end(acts, result);
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle name, unsigned long long flags)
{
    struct handle *handle = NULL;
    bool acts;
    if (!vmm_begin(&acts))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUmemGenericAllocationHandle real = acts ? vmm_real(name, &handle) : name;
    if (handle && handle->is_named && !handle->references)
        return vmm_end(acts, CUDA_ERROR_INVALID_VALUE);
    CUresult result = driver()->cuMemMap(pointer, bytes, offset, real, flags);
    if (!handle || result != CUDA_SUCCESS)
        return vmm_end(acts, result);
    if (offset) /* no driver takes an offset today; a copy starts at the beginning */
        handles_hold(handle, ALIQUOT_PIN_MODE);
    if (!handles_map(handle, pointer, bytes)) {
        LOG("event=no_memory_for_record key=%llx", (unsigned long long)pointer);
        driver()->cuMemUnmap(pointer, bytes);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return vmm_end(acts, result);
}
