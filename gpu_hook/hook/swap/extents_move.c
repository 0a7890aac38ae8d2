/* Taking the pieces out and bringing them in: all of them or none. Between unmapping and releasing nothing is lost, so that
 * what fails before is undone; creating and mapping are undone by releasing. */
#include "accounting/devices.h"
#include "base/log.h"
#include "swap/extents.h"
#include "swap/extents_walk.h"
#include "accounting/pin_reasons.h"

static size_t put(CUmemAccessDesc *accesses, size_t count, uint64_t devices, CUmemAccess_flags flags)
{
    for (int device = 0; device < DEVICES_MAX; device++)
        if (devices >> device & 1)
            accesses[count++] = (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                                                  .flags = flags};
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
    return one->readers == other->readers && one->writers == other->writers && one->host.flags == other->host.flags;
}

/* Neighbours with the same accesses are opened by one call: it is the dear one. */
static CUresult open_mappings(void)
{
    CUresult result = CUDA_SUCCESS;
    struct mapping *first = pieces_next_mapping(NULL);
    while (first && result == CUDA_SUCCESS) {
        CUdeviceptr end = span_end(&first->span);
        struct mapping *next = pieces_next_mapping(first);
        for (; next && next->span.start == end && are_alike(first, next); next = pieces_next_mapping(next))
            end = span_end(&next->span);
        result = open_range(first->span.start, end - first->span.start, first);
        first = next;
    }
    return result;
}

/* Unmaps mappings and what was mapped to copy through, up to `last`. */
static CUresult unmap_handles(void)
{
    CUresult result = CUDA_SUCCESS;
    for (struct mapping *mapping = pieces_next_mapping(NULL); mapping && result == CUDA_SUCCESS; mapping = pieces_next_mapping(mapping)) {
        if (mapping->is_mapped)
            result = driver()->cuMemUnmap(mapping->span.start, mapping->span.bytes);
        mapping->is_mapped &= result != CUDA_SUCCESS;
    }
    for (struct handle *handle = pieces_next_handle(NULL); handle && result == CUDA_SUCCESS; handle = pieces_next_handle(handle)) {
        if (handle->is_scratch_mapped)
            result = driver()->cuMemUnmap(handle->scratch, handle->bytes);
        handle->is_scratch_mapped &= result != CUDA_SUCCESS;
    }
    return result;
}

static CUresult map_handles(void)
{
    CUresult result = CUDA_SUCCESS;
    for (struct mapping *mapping = pieces_next_mapping(NULL); mapping && result == CUDA_SUCCESS; mapping = pieces_next_mapping(mapping)) {
        if (!mapping->is_mapped)
            result = driver()->cuMemMap(mapping->span.start, mapping->span.bytes, 0, mapping->handle->real, 0);
        mapping->is_mapped |= result == CUDA_SUCCESS;
    }
    for (struct handle *handle = pieces_next_handle(NULL); handle && result == CUDA_SUCCESS; handle = pieces_next_handle(handle))
        if (handle->scratch && !handle->is_scratch_mapped)
            result = pieces_map_scratch(handle);
    return result == CUDA_SUCCESS ? open_mappings() : result;
}

static CUresult unmap_elastic(const struct spans *table)
{
    CUresult result = CUDA_SUCCESS;
    for (struct elastic *elastic = pieces_next_elastic(table, NULL); elastic && result == CUDA_SUCCESS;
         elastic = pieces_next_elastic(table, elastic)) {
        if (elastic->is_mapped)
            result = elastic_unmap_chunks(elastic);
        elastic->is_mapped &= result != CUDA_SUCCESS;
    }
    return result;
}

static CUresult map_elastic(const struct spans *table)
{
    CUresult result = CUDA_SUCCESS;
    for (struct elastic *elastic = pieces_next_elastic(table, NULL); elastic && result == CUDA_SUCCESS;
         elastic = pieces_next_elastic(table, elastic)) {
        if (!elastic->is_mapped)
            result = elastic_map_chunks(elastic);
        elastic->is_mapped |= result == CUDA_SUCCESS;
    }
    return result;
}

/* All that leaves is in one state, but for the marks; here that changes. */
static void turn(const struct spans *table, bool is_out)
{
    struct elastic *elastic = pieces_next_elastic(table, NULL);
    while (elastic) {
        struct elastic *next = pieces_next_elastic(table, elastic);
        staying_change_out(elastic->device, is_out ? (int64_t)elastic->span.bytes : -(int64_t)elastic->span.bytes);
        elastic->is_out = is_out;
        elastic = next;
    }
    struct handle *handle = pieces_next_handle(NULL);
    while (handle) {
        struct handle *next = pieces_next_handle(handle);
        staying_change_out(handle->asked.location.id, is_out ? (int64_t)handle->bytes : -(int64_t)handle->bytes);
        handle->is_out = is_out;
        handle = next;
    }
    pieces_set_out(is_out);
}

static void release_all(const struct spans *table)
{
    for (struct elastic *elastic = pieces_next_elastic(table, NULL); elastic; elastic = pieces_next_elastic(table, elastic))
        elastic_release_chunks(elastic);
    for (struct handle *handle = pieces_next_handle(NULL); handle; handle = pieces_next_handle(handle)) {
        if (handle->real)
            driver()->cuMemRelease(handle->real);
        handle->real = 0;
    }
}

CUresult pieces_take_out(const struct piece *pieces, size_t count)
{
    (void)pieces; /* the tables say the same */
    if (pieces_are_out() || !count)
        return count ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    const struct spans *table = pieces_lock();
    CUresult result = unmap_elastic(table);
    if (result == CUDA_SUCCESS)
        result = unmap_handles();
    if (result == CUDA_SUCCESS) {
        release_all(table);
        turn(table, true);
    } else if (map_elastic(table) != CUDA_SUCCESS || map_handles() != CUDA_SUCCESS) {
        LOG("event=not_mapped_again reason=\"unmapping failed with %d, and then mapping, too\"", (int)result);
    }
    pieces_unlock();
    return result;
}

static CUresult create_all(const struct spans *table)
{
    CUresult result = CUDA_SUCCESS;
    for (struct elastic *elastic = pieces_next_elastic(table, NULL); elastic && result == CUDA_SUCCESS;
         elastic = pieces_next_elastic(table, elastic))
        result = elastic_create_chunks(elastic);
    for (struct handle *handle = pieces_next_handle(NULL); handle && result == CUDA_SUCCESS; handle = pieces_next_handle(handle)) {
        result = driver()->cuMemCreate(&handle->real, handle->bytes, &handle->asked, 0);
        if (result != CUDA_SUCCESS)
            handle->real = 0;
    }
    return result;
}

CUresult pieces_bring_in(const struct piece *pieces, size_t count)
{
    (void)pieces;
    if (!pieces_are_out())
        return count ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    const struct spans *table = pieces_lock();
    CUresult result = create_all(table);
    if (result == CUDA_SUCCESS)
        result = map_elastic(table);
    if (result == CUDA_SUCCESS)
        result = map_handles();
    if (result == CUDA_SUCCESS) {
        turn(table, false);
    } else {
        unmap_elastic(table);
        unmap_handles();
        release_all(table);
    }
    pieces_unlock();
    return result;
}
