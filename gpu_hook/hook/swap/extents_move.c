/* Takes the extents out and brings them in: all of them or none. Between unmapping and releasing
 * no data is lost, so a failure before that is undone; creating and mapping are undone by
 * releasing. */
#include "accounting/devices.h"
#include "base/log.h"
#include "swap/extents.h"
#include "swap/extents_walk.h"
#include "accounting/pin_reasons.h"

static size_t put(CUmemAccessDesc *accesses, size_t count, uint64_t devices,
                  CUmemAccess_flags flags)
{
    for (int device = 0; device < DEVICES_MAX; device++)
        if (devices >> device & 1)
            accesses[count++] = (CUmemAccessDesc){
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}, .flags = flags};
    return count;
}

static CUresult open_range(CUdeviceptr start, size_t bytes, const struct mapping *alike)
{
    CUmemAccessDesc accesses[DEVICES_MAX + 1];
    size_t count = put(accesses, 0, alike->writers, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    count = put(accesses, count, alike->readers, CU_MEM_ACCESS_FLAGS_PROT_READ);
    if (alike->host.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
        accesses[count++] = alike->host;
    return count ? driver()->cuMemSetAccess(start, bytes, accesses, count) : CUDA_SUCCESS;
}

static bool are_alike(const struct mapping *one, const struct mapping *other)
{
    return one->readers == other->readers && one->writers == other->writers &&
           one->host.flags == other->host.flags;
}

/* Open adjacent mappings with the same accesses by one call, because that call is the expensive
 * one. */
static CUresult open_mappings(void)
{
    CUresult result = CUDA_SUCCESS;
    struct mapping *first = extents_next_mapping(NULL);
    while (first && result == CUDA_SUCCESS) {
        CUdeviceptr end = span_end(&first->span);
        struct mapping *next = extents_next_mapping(first);
        for (; next && next->span.start == end && are_alike(first, next);
             next = extents_next_mapping(next))
            end = span_end(&next->span);
        result = open_range(first->span.start, end - first->span.start, first);
        first = next;
    }
    return result;
}

/* Unmap mappings and the addresses to copy through, up to `last`. */
static CUresult unmap_handles(void)
{
    CUresult result = CUDA_SUCCESS;
    for (struct mapping *mapping = extents_next_mapping(NULL); mapping && result == CUDA_SUCCESS;
         mapping = extents_next_mapping(mapping)) {
        if (mapping->is_mapped)
            result = driver()->cuMemUnmap(mapping->span.start, mapping->span.bytes);
        mapping->is_mapped &= result != CUDA_SUCCESS;
    }
    for (struct handle *handle = extents_next_handle(NULL); handle && result == CUDA_SUCCESS;
         handle = extents_next_handle(handle)) {
        if (handle->is_scratch_mapped)
            result = driver()->cuMemUnmap(handle->scratch, handle->bytes);
        handle->is_scratch_mapped &= result != CUDA_SUCCESS;
    }
    return result;
}

static CUresult map_handles(void)
{
    CUresult result = CUDA_SUCCESS;
    for (struct mapping *mapping = extents_next_mapping(NULL); mapping && result == CUDA_SUCCESS;
         mapping = extents_next_mapping(mapping)) {
        if (!mapping->is_mapped)
            result = driver()->cuMemMap(mapping->span.start, mapping->span.bytes, 0,
                                        mapping->handle->real, 0);
        mapping->is_mapped |= result == CUDA_SUCCESS;
    }
    for (struct handle *handle = extents_next_handle(NULL); handle && result == CUDA_SUCCESS;
         handle = extents_next_handle(handle))
        if (handle->scratch && !handle->is_scratch_mapped)
            result = extents_map_scratch(handle);
    return result == CUDA_SUCCESS ? open_mappings() : result;
}

static CUresult unmap_swappable(const struct spans *table)
{
    CUresult result = CUDA_SUCCESS;
    for (struct swappable *swappable = extents_next_swappable(table, NULL);
         swappable && result == CUDA_SUCCESS;
         swappable = extents_next_swappable(table, swappable)) {
        if (swappable->is_mapped)
            result = swappable_unmap_chunks(swappable);
        swappable->is_mapped &= result != CUDA_SUCCESS;
    }
    return result;
}

static CUresult map_swappable(const struct spans *table)
{
    CUresult result = CUDA_SUCCESS;
    for (struct swappable *swappable = extents_next_swappable(table, NULL);
         swappable && result == CUDA_SUCCESS;
         swappable = extents_next_swappable(table, swappable)) {
        if (!swappable->is_mapped)
            result = swappable_map_chunks(swappable);
        swappable->is_mapped |= result == CUDA_SUCCESS;
    }
    return result;
}

/* All leaving memory is in one state, but for the marks; this changes it. */
static void turn(const struct spans *table, bool is_out)
{
    struct swappable *swappable = extents_next_swappable(table, NULL);
    while (swappable) {
        struct swappable *next = extents_next_swappable(table, swappable);
        pin_reasons_change_out(swappable->device, is_out ? (int64_t)swappable->span.bytes
                                                         : -(int64_t)swappable->span.bytes);
        swappable->is_out = is_out;
        swappable = next;
    }
    struct handle *handle = extents_next_handle(NULL);
    while (handle) {
        struct handle *next = extents_next_handle(handle);
        pin_reasons_change_out(handle->requested.location.id,
                               is_out ? (int64_t)handle->bytes : -(int64_t)handle->bytes);
        handle->is_out = is_out;
        handle = next;
    }
    extents_set_out(is_out);
}

static void release_all(const struct spans *table)
{
    for (struct swappable *swappable = extents_next_swappable(table, NULL); swappable;
         swappable = extents_next_swappable(table, swappable))
        swappable_release_chunks(swappable);
    for (struct handle *handle = extents_next_handle(NULL); handle;
         handle = extents_next_handle(handle)) {
        if (handle->real)
            driver()->cuMemRelease(handle->real);
        handle->real = 0;
    }
}

CUresult extents_unmap(const struct extent *extents, size_t count)
{
    (void)extents; /* the tables say the same */
    if (extents_are_out() || !count)
        return count ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    const struct spans *table = extents_lock();
    CUresult result = unmap_swappable(table);
    if (result == CUDA_SUCCESS)
        result = unmap_handles();
    if (result == CUDA_SUCCESS) {
        release_all(table);
        turn(table, true);
    } else if (map_swappable(table) != CUDA_SUCCESS || map_handles() != CUDA_SUCCESS) {
        LOG("event=not_mapped_again reason=\"unmapping failed with %d, and then mapping, too\"",
            (int)result);
    }
    extents_unlock();
    return result;
}

static CUresult create_all(const struct spans *table)
{
    CUresult result = CUDA_SUCCESS;
    for (struct swappable *swappable = extents_next_swappable(table, NULL);
         swappable && result == CUDA_SUCCESS; swappable = extents_next_swappable(table, swappable))
        result = swappable_create_chunks(swappable);
    for (struct handle *handle = extents_next_handle(NULL); handle && result == CUDA_SUCCESS;
         handle = extents_next_handle(handle)) {
        result = driver()->cuMemCreate(&handle->real, handle->bytes, &handle->requested, 0);
        if (result != CUDA_SUCCESS)
            handle->real = 0;
    }
    return result;
}

CUresult extents_map(const struct extent *extents, size_t count)
{
    (void)extents;
    if (!extents_are_out())
        return count ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    const struct spans *table = extents_lock();
    CUresult result = create_all(table);
    if (result == CUDA_SUCCESS)
        result = map_swappable(table);
    if (result == CUDA_SUCCESS)
        result = map_handles();
    if (result == CUDA_SUCCESS) {
        turn(table, false);
    } else {
        unmap_swappable(table);
        unmap_handles();
        release_all(table);
    }
    extents_unlock();
    return result;
}
