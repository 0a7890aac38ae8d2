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

static uint64_t wanted_devices(const struct elastic *elastic)
{
    return swappability_peers(elastic->device) & (devices_used() | 1ull << elastic->device);
}

static CUresult open_to(const struct elastic *elastic, uint64_t devices)
{
    CUmemAccessDesc accesses[DEVICES_MAX];
    size_t count = 0;
    for (int other = 0; other < DEVICES_MAX; other++)
        if (devices >> other & 1)
            accesses[count++] = (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = other},
                                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return driver()->cuMemSetAccess(elastic->span.start, elastic->span.bytes, accesses, count);
}

static size_t bytes_of_chunk(const struct elastic *elastic, size_t index)
{
    size_t before = index * elastic->chunk_bytes, left = elastic->span.bytes - before;
    return left < elastic->chunk_bytes ? left : elastic->chunk_bytes;
}

static void release(struct elastic *elastic, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (elastic->chunks[i])
            driver()->cuMemRelease(elastic->chunks[i]);
        elastic->chunks[i] = 0;
    }
}

CUresult elastic_create_chunks(struct elastic *elastic)
{
    CUmemAllocationProp properties = properties_on(elastic->device);
    for (size_t i = 0; i < elastic->chunk_count; i++) {
        CUresult result = driver()->cuMemCreate(&elastic->chunks[i], bytes_of_chunk(elastic, i), &properties, 0);
        if (result != CUDA_SUCCESS) {
            elastic->chunks[i] = 0;
            release(elastic, i);
            return result;
        }
    }
    return CUDA_SUCCESS;
}

void elastic_release_chunks(struct elastic *elastic)
{
    release(elastic, elastic->chunk_count);
}

/* One by one. Returns the answer for the memory's own device. */
static CUresult open_each(const struct elastic *elastic, uint64_t devices)
{
    CUresult own = CUDA_SUCCESS;
    for (int other = 0; other < DEVICES_MAX; other++) {
        CUresult result = devices >> other & 1 ? open_to(elastic, 1ull << other) : CUDA_SUCCESS;
        if (result != CUDA_SUCCESS)
            LOG("event=not_opened device=%d peer=%d code=%d", elastic->device, other, (int)result);
        own = other == elastic->device ? result : own;
    }
    return own;
}

/* A peer that refuses now costs that peer its access, and nobody the memory. */
static CUresult open_to_devices(struct elastic *elastic)
{
    uint64_t own = 1ull << elastic->device;
    elastic->opened = wanted_devices(elastic);
    CUresult result = open_to(elastic, elastic->opened);
    return result == CUDA_SUCCESS || elastic->opened == own ? result : open_each(elastic, elastic->opened);
}

void elastic_open_to_used(struct elastic *elastic)
{
    uint64_t lacking = wanted_devices(elastic) & ~elastic->opened;
    elastic->opened |= lacking;
    if (lacking && open_to(elastic, lacking) != CUDA_SUCCESS)
        open_each(elastic, lacking);
}

static CUresult map_one(const struct elastic *elastic, size_t index)
{
    return driver()->cuMemMap(elastic->span.start + index * elastic->chunk_bytes, bytes_of_chunk(elastic, index), 0,
                              elastic->chunks[index], 0);
}

/* Each by itself: a driver need not take several mappings at once. */
static CUresult unmap_one(const struct elastic *elastic, size_t index)
{
    return driver()->cuMemUnmap(elastic->span.start + index * elastic->chunk_bytes, bytes_of_chunk(elastic, index));
}

static void restore_syncs(const struct elastic *elastic)
{
    unsigned int is_on = 1;
    for (size_t i = 0; elastic->syncs && i < elastic->chunk_count; i++)
        driver()->cuPointerSetAttribute(&is_on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                        elastic->span.start + i * elastic->chunk_bytes);
}

CUresult elastic_map_chunks(struct elastic *elastic)
{
    size_t mapped = 0;
    CUresult result = CUDA_SUCCESS;
    while (mapped < elastic->chunk_count && (result = map_one(elastic, mapped)) == CUDA_SUCCESS)
        mapped++;
    if (result == CUDA_SUCCESS)
        result = open_to_devices(elastic);
    if (result == CUDA_SUCCESS)
        restore_syncs(elastic);
    while (result != CUDA_SUCCESS && mapped > 0)
        unmap_one(elastic, --mapped);
    return result;
}

CUresult elastic_unmap_chunks(struct elastic *elastic)
{
    size_t unmapped = 0;
    CUresult result = CUDA_SUCCESS;
    while (unmapped < elastic->chunk_count && (result = unmap_one(elastic, unmapped)) == CUDA_SUCCESS)
        unmapped++;
    if (result == CUDA_SUCCESS || unmapped == 0)
        return result;
    while (unmapped > 0) /* what went is put back: it is still there */
        map_one(elastic, --unmapped);
    open_to_devices(elastic);
    return result;
}

/* A free of nothing would tell as much, but a driver may wait for the whole device before it looks at the address. It is
 * asked only where a capture forbids it: there the driver refuses at once, and does to the capture what it does at any
 * allocation. */
CUresult elastic_ask_context(void)
{
    unsigned int flags;
    CUresult refusal = captures_forbid_unsafe_calls() ? driver()->cuMemFree_v2(0) : CUDA_SUCCESS;
    if (refusal != CUDA_SUCCESS && refusal != CUDA_ERROR_INVALID_VALUE)
        return refusal;
    return driver()->cuCtxGetFlags(&flags);
}
