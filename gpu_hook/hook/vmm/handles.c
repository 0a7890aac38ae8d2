#include "vmm/handles.h"

#include "charging/charge.h"
#include "accounting/pin_reasons.h"

#include <pthread.h>
#include <stdlib.h>

#define IDENTITIES (1ull << 59) /* apart from the driver's own BUFFER_IDs */

static struct { /* guarded by vmm_lock */
    struct spans handles;
    struct spans mappings;
    uint64_t last_identity;
    uint32_t named; /* read without */
    /* taken inside vmm_lock by a thread that changes mappings, alone by one that reads them; never
     * held over a driver's call */
    pthread_mutex_t reading;
} state = {.reading = PTHREAD_MUTEX_INITIALIZER};

void handles_reset(void)
{
    pthread_mutex_init(&state.reading, NULL);
    state.handles = state.mappings = (struct spans){NULL, 0}; /* the parent's */
    state.named = 0;
}

struct handle *handles_add(CUmemGenericAllocationHandle real, size_t bytes,
                           const CUmemAllocationProp *requested, bool is_named, bool can_leave)
{
    struct handle *handle = calloc(1, sizeof *handle);
    if (!handle)
        return NULL;
    handle->real = real;
    handle->name.start = is_named ? (uint64_t)handle : real;
    handle->name.bytes = 1;
    handle->is_named = is_named;
    handle->bytes = bytes;
    handle->requested = handle->reported = *requested;
    handle->references = 1;
    handle->pin_reasons = can_leave ? PIN_NONE : ALIQUOT_PIN_MODE;
    handle->id = IDENTITIES | ++state.last_identity;
    if (is_named) {
        __atomic_fetch_add(&state.named, 1, __ATOMIC_RELAXED);
        driver()->cuMemGetAllocationPropertiesFromHandle(&handle->reported, real);
    }
    spans_add(&state.handles, &handle->name);
    return handle;
}

bool handles_are_named(void)
{
    return __atomic_load_n(&state.named, __ATOMIC_RELAXED) != 0;
}

struct handle *handles_find(CUmemGenericAllocationHandle name)
{
    return spans_at(&state.handles, name);
}

struct handle *handles_next(const struct handle *handle)
{
    return spans_from(&state.handles, handle ? span_end(&handle->name) : 0);
}

struct handle *handles_of_real(CUmemGenericAllocationHandle real)
{
    struct handle *handle = handles_next(NULL);
    while (handle && (handle->is_out || handle->real != real))
        handle = handles_next(handle);
    return handle;
}

static void recount(const struct handle *handle, uint32_t from, uint32_t to)
{
    if (handle->requested.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return;
    pin_reasons_change(handle->requested.location.id, from, -(int64_t)handle->bytes);
    pin_reasons_change(handle->requested.location.id, to, (int64_t)handle->bytes);
}

void handles_hold(struct handle *handle, uint32_t reason)
{
    if (handle->pin_reasons)
        return;
    recount(handle, PIN_NONE, reason);
    handle->pin_reasons = reason;
}

static void end(struct handle *handle)
{
    struct allocation allocation;
    if (handle->is_named)
        __atomic_fetch_sub(&state.named, 1, __ATOMIC_RELAXED);
    spans_remove(&state.handles, &handle->name);
    if (handle->is_out)
        pin_reasons_change_out(handle->requested.location.id, -(int64_t)handle->bytes);
    if (handle->is_scratch_mapped)
        driver()->cuMemUnmap(handle->scratch, handle->bytes);
    if (handle->scratch)
        driver()->cuMemAddressFree(handle->scratch, handle->bytes);
    if (handle->real && handle->is_named)
        driver()->cuMemRelease(handle->real);
    if (allocations_take(handle->name.start, SPACE_HANDLE, &allocation)) {
        if (allocation.pin_reasons != handle->pin_reasons)
            recount(handle, handle->pin_reasons, allocation.pin_reasons);
        charge_refund(&allocation);
    }
    free(handle);
}

void handles_change(struct handle *handle, int references, int mappings)
{
    handle->references += (uint32_t)references;
    handle->mappings += (uint32_t)mappings;
    if (handle->references == 0 && handle->mappings == 0)
        end(handle);
}

bool handles_map(struct handle *handle, CUdeviceptr address, size_t bytes)
{
    struct mapping *mapping = calloc(1, sizeof *mapping);
    if (!mapping)
        return false;
    mapping->span.start = address;
    mapping->span.bytes = bytes;
    mapping->handle = handle;
    mapping->is_mapped = true;
    mapping->id = IDENTITIES | ++state.last_identity;
    pthread_mutex_lock(&state.reading);
    spans_add(&state.mappings, &mapping->span);
    pthread_mutex_unlock(&state.reading);
    handles_change(handle, 0, 1);
    return true;
}

void handles_unmap(struct mapping *mapping)
{
    pthread_mutex_lock(&state.reading);
    spans_remove(&state.mappings, &mapping->span);
    pthread_mutex_unlock(&state.reading);
    handles_change(mapping->handle, 0, -1);
    free(mapping);
}

struct mapping *handles_mapping_at(CUdeviceptr address)
{
    return spans_at(&state.mappings, address);
}

bool handles_read_mapping(CUdeviceptr address, struct mapping_view *view)
{
    pthread_mutex_lock(&state.reading);
    const struct mapping *found = spans_at(&state.mappings, address);
    const struct handle *handle = found ? found->handle : NULL;
    bool is_named = handle && handle->is_named;
    if (is_named)
        *view = (struct mapping_view){
            .start = found->span.start,
            .bytes = found->span.bytes,
            .id = found->id,
            .memory_id = handle->id,
            .readers = found->readers,
            .writers = found->writers,
            .device = handle->requested.location.id,
            .handle_types = handle->requested.requestedHandleTypes,
            .is_out = handle->is_out,
        };
    pthread_mutex_unlock(&state.reading);
    return is_named;
}

struct mapping *handles_mapping_from(CUdeviceptr address)
{
    return spans_from(&state.mappings, address);
}

static void set_access(struct mapping *mapping, const CUmemAccessDesc *access)
{
    if (access->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        mapping->host = *access;
        return;
    }
    if (access->location.id < 0 || access->location.id >= DEVICES_MAX)
        return;
    uint64_t bit = 1ull << access->location.id;
    mapping->readers &= ~bit;
    mapping->writers &= ~bit;
    if (access->flags == CU_MEM_ACCESS_FLAGS_PROT_READ)
        mapping->readers |= bit;
    else if (access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        mapping->writers |= bit;
}

void handles_set_access(CUdeviceptr start, size_t bytes, const CUmemAccessDesc *accesses,
                        size_t count)
{
    struct mapping *mapping = handles_mapping_from(start);
    pthread_mutex_lock(&state.reading);
    for (; mapping && mapping->span.start < start + bytes;
         mapping = handles_mapping_from(span_end(&mapping->span)))
        for (size_t i = 0; i < count; i++)
            set_access(mapping, &accesses[i]);
    pthread_mutex_unlock(&state.reading);
}
