#include "swappable/swappable_chunks.h"

#include "contexts/captures.h"
#include "accounting/devices.h"
#include "accounting/swappability.h"
#include "base/log.h"

#include <string.h>

static CUmemAllocationProp properties_on(int device)
{
    CUmemAllocationProp properties;
    memset(&properties, 0, sizeof properties);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    return properties;
}

static uint64_t wanted_devices(const struct swappable *swappable)
{
    return swappability_peers(swappable->device) & (devices_used() | 1ull << swappable->device);
}

static CUresult open_to(const struct swappable *swappable, uint64_t devices)
{
    CUmemAccessDesc accesses[DEVICES_MAX];
    size_t count = 0;
    for (int other = 0; other < DEVICES_MAX; other++)
        if (devices >> other & 1)
            accesses[count++] =
                (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = other},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return driver()->cuMemSetAccess(swappable->span.start, swappable->span.bytes, accesses, count);
}

static size_t bytes_of_chunk(const struct swappable *swappable, size_t index)
{
    size_t before = index * swappable->chunk_bytes, left = swappable->span.bytes - before;
    return left < swappable->chunk_bytes ? left : swappable->chunk_bytes;
}

static void release(struct swappable *swappable, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (swappable->chunks[i])
            driver()->cuMemRelease(swappable->chunks[i]);
        swappable->chunks[i] = 0;
    }
}

CUresult swappable_create_chunks(struct swappable *swappable)
{
    CUmemAllocationProp properties = properties_on(swappable->device);
    for (size_t i = 0; i < swappable->chunk_count; i++) {
        CUresult result = driver()->cuMemCreate(&swappable->chunks[i], bytes_of_chunk(swappable, i),
                                                &properties, 0);
        if (result != CUDA_SUCCESS) {
            swappable->chunks[i] = 0;
            release(swappable, i);
            return result;
        }
    }
    return CUDA_SUCCESS;
}

void swappable_release_chunks(struct swappable *swappable)
{
    release(swappable, swappable->chunk_count);
}

/* Open the chunks one by one. Returns the answer for the memory's own device. */
static CUresult open_each(const struct swappable *swappable, uint64_t devices)
{
    CUresult own = CUDA_SUCCESS;
    for (int other = 0; other < DEVICES_MAX; other++) {
        CUresult result = devices >> other & 1 ? open_to(swappable, 1ull << other) : CUDA_SUCCESS;
        if (result != CUDA_SUCCESS)
            LOG("event=not_opened device=%d peer=%d code=%d", swappable->device, other,
                (int)result);
        own = other == swappable->device ? result : own;
    }
    return own;
}

/* Open the memory to its devices. A peer that refuses loses its own access, and the allocation
 * succeeds. */
static CUresult open_to_devices(struct swappable *swappable)
{
    uint64_t own = 1ull << swappable->device;
    swappable->opened = wanted_devices(swappable);
    CUresult result = open_to(swappable, swappable->opened);
    return result == CUDA_SUCCESS || swappable->opened == own
               ? result
               : open_each(swappable, swappable->opened);
}

void swappable_open_to_used(struct swappable *swappable)
{
    uint64_t lacking = wanted_devices(swappable) & ~swappable->opened;
    swappable->opened |= lacking;
    if (lacking && open_to(swappable, lacking) != CUDA_SUCCESS)
        open_each(swappable, lacking);
}

static CUresult map_one(const struct swappable *swappable, size_t index)
{
    return driver()->cuMemMap(swappable->span.start + index * swappable->chunk_bytes,
                              bytes_of_chunk(swappable, index), 0, swappable->chunks[index], 0);
}

/* Each by itself: a driver need not take several mappings at once. */
static CUresult unmap_one(const struct swappable *swappable, size_t index)
{
    return driver()->cuMemUnmap(swappable->span.start + index * swappable->chunk_bytes,
                                bytes_of_chunk(swappable, index));
}

static void restore_syncs(const struct swappable *swappable)
{
    unsigned int is_on = 1;
    for (size_t i = 0; swappable->syncs && i < swappable->chunk_count; i++)
        driver()->cuPointerSetAttribute(&is_on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                        swappable->span.start + i * swappable->chunk_bytes);
}

CUresult swappable_map_chunks(struct swappable *swappable)
{
    size_t mapped = 0;
    CUresult result = CUDA_SUCCESS;
    while (mapped < swappable->chunk_count && (result = map_one(swappable, mapped)) == CUDA_SUCCESS)
        mapped++;
    if (result == CUDA_SUCCESS)
        result = open_to_devices(swappable);
    if (result == CUDA_SUCCESS)
        restore_syncs(swappable);
    while (result != CUDA_SUCCESS && mapped > 0)
        unmap_one(swappable, --mapped);
    return result;
}

CUresult swappable_unmap_chunks(struct swappable *swappable)
{
    size_t unmapped = 0;
    CUresult result = CUDA_SUCCESS;
    while (unmapped < swappable->chunk_count &&
           (result = unmap_one(swappable, unmapped)) == CUDA_SUCCESS)
        unmapped++;
    if (result == CUDA_SUCCESS || unmapped == 0)
        return result;
    while (unmapped > 0) /* map again what was unmapped: the chunks still exist */
        map_one(swappable, --unmapped);
    open_to_devices(swappable);
    return result;
}

/* A free of nothing would tell as much, but a driver may wait for the whole device before it looks
 * at the address. It is asked only where a capture forbids it: there the driver refuses at once,
 * and does to the capture what it does at any allocation. */
CUresult swappable_ask_context(void)
{
    unsigned int flags;
    CUresult refusal = captures_forbid_unsafe_calls() ? driver()->cuMemFree_v2(0) : CUDA_SUCCESS;
    if (refusal != CUDA_SUCCESS && refusal != CUDA_ERROR_INVALID_VALUE)
        return refusal;
    return driver()->cuCtxGetFlags(&flags);
}
