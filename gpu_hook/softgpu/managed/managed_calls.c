/* Managed memory: allocation, prefetches, discards, and attachment to streams. */
#include <string.h>

#include "queue/captures.h"
#include "driver/checkpoint.h"
#include "driver/driver.h"
#include "device/engine.h"
#include "implemented.h"
#include "managed/managed.h"
#include "managed/managed_locations.h"
#include "queue/streams.h"

CUresult impl_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    struct context *context;
    uint64_t address;
    CUresult result = context_current(&context);
    if (result || dptr == NULL || bytesize == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    result = capture_check_unsafe();
    result = result ? result : managed_allocate(context, bytesize, flags, &address);
    if (result == CUDA_SUCCESS) {
        checkpoint_forbid(SLOT_HAS_MANAGED);
        *dptr = address;
    }
    return result;
}

struct prefetch {
    uint64_t address, bytes;
    int device; /* index in the machine, or MANAGED_HOST */
    int is_discard;
};

static CUresult run_prefetch(struct work_item *work, uint64_t *clock)
{
    const struct prefetch *own = (const struct prefetch *)work->payload;
    uint64_t moved = managed_move(own->address, own->bytes, own->device);
    if (own->is_discard || moved == 0)
        return CUDA_SUCCESS;
    int to_device = own->device != MANAGED_HOST;
    unsigned engine = to_device ? (unsigned)own->device : work->stream->context->physical;
    *clock = engine_copy(&driver.attachment, engine, to_device ? COPY_TO_DEVICE : COPY_TO_HOST, *clock, moved);
    return CUDA_SUCCESS;
}

static CUresult enqueue(CUstream handle, struct prefetch prefetch)
{
    struct stream *stream;
    struct context *context;
    CUresult result = stream_resolve(handle, &stream, &context);
    if (result == CUDA_SUCCESS && capture_is_on())
        result = captures->check_stream(stream); /* no node can do it */
    if (result)
        return result;
    struct work_item *work = work_new(run_prefetch, sizeof prefetch);
    if (work == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *(struct prefetch *)work->payload = prefetch;
    return stream_enqueue(stream, work);
}

static void note_prefetch(struct managed_advice *advice, void *location)
{
    advice->prefetched = *(const CUmemLocation *)location;
}

static CUresult prefetch(CUdeviceptr devPtr, size_t count, CUmemLocation location, CUstream stream)
{
    CUresult result = managed_check_location(&location);
    if (result)
        return result;
    if (!managed_holds(devPtr, count) || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    int is_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    int device = is_device ? (int)driver.physical[location.id] : MANAGED_HOST;
    result = enqueue(stream, (struct prefetch){devPtr, count, device, 0});
    if (result == CUDA_SUCCESS)
        managed_visit(devPtr, count, note_prefetch, &location);
    return result;
}

CUresult impl_cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
                                    CUstream hStream)
{
    return flags ? CUDA_ERROR_INVALID_VALUE : prefetch(devPtr, count, location, hStream);
}

CUresult impl_cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
    return prefetch(devPtr, count, managed_location_of(dstDevice), hStream);
}

/* The whole batch is checked before any of it is done. Not on the legacy stream. */
static CUresult check_batch(const CUdeviceptr *dptrs, const size_t *sizes, size_t count, unsigned long long flags,
                            CUstream stream)
{
    struct stream *resolved;
    struct context *context;
    CUresult result = stream_resolve(stream, &resolved, &context);
    if (result)
        return result;
    if (dptrs == NULL || sizes == NULL || count == 0 || flags || resolved->kind == STREAM_LEGACY)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (sizes[i] == 0 || !managed_holds(dptrs[i], sizes[i]))
            return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult check_locations(const CUmemLocation *locations, const size_t *indices, size_t location_count,
                                size_t count)
{
    if (locations == NULL || indices == NULL || location_count == 0 || location_count > count || indices[0] != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < location_count; i++) {
        if (indices[i] >= count || (i && indices[i] <= indices[i - 1]))
            return CUDA_ERROR_INVALID_VALUE;
        CUresult result = managed_check_location(&locations[i]);
        if (result)
            return result;
    }
    return CUDA_SUCCESS;
}

CUresult impl_cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
                                      size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
                                      CUstream hStream)
{
    CUresult result = check_batch(dptrs, sizes, count, flags, hStream);
    result = result ? result : check_locations(prefetchLocs, prefetchLocIdxs, numPrefetchLocs, count);
    for (size_t i = 0, at = 0; result == CUDA_SUCCESS && i < count; i++) {
        while (at + 1 < numPrefetchLocs && prefetchLocIdxs[at + 1] <= i)
            at++;
        result = prefetch(dptrs[i], sizes[i], prefetchLocs[at], hStream);
    }
    return result;
}

/* A discarded block leaves its device without a copy. */
CUresult impl_cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, unsigned long long flags,
                                     CUstream hStream)
{
    CUresult result = check_batch(dptrs, sizes, count, flags, hStream);
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
        result = enqueue(hStream, (struct prefetch){dptrs[i], sizes[i], MANAGED_HOST, 1});
    return result;
}

CUresult impl_cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                                CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                                size_t numPrefetchLocs, unsigned long long flags, CUstream hStream)
{
    CUresult result = check_batch(dptrs, sizes, count, flags, hStream);
    result = result ? result : check_locations(prefetchLocs, prefetchLocIdxs, numPrefetchLocs, count);
    result = result ? result : impl_cuMemDiscardBatchAsync(dptrs, sizes, count, flags, hStream);
    return result ? result
                  : impl_cuMemPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs,
                                                 flags, hStream);
}

struct stream_attachment {
    uint64_t address;
    unsigned flags;
};

static CUresult run_attach(struct work_item *work, uint64_t *clock)
{
    const struct stream_attachment *own = (const struct stream_attachment *)work->payload;
    managed_attach(own->address, own->flags);
    return CUDA_SUCCESS;
}

/* Devices here use managed memory as the host does, so an attachment changes nothing but what it
 * is. */
CUresult impl_cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags)
{
    struct stream *stream;
    struct context *context;
    struct managed_range found;
    CUresult result = stream_resolve(hStream, &stream, &context);
    if (result)
        return result;
    if (capture_takes(stream, &result))
        return captures->refuse(stream);
    if (result)
        return result;
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
        return CUDA_ERROR_INVALID_VALUE;
    if (managed_find(dptr, &found) != 0 || (length && (length != found.bytes || dptr != found.start)) ||
        (flags == CU_MEM_ATTACH_SINGLE && stream->kind == STREAM_LEGACY))
        return CUDA_ERROR_INVALID_VALUE;
    struct work_item *work = work_new(run_attach, sizeof(struct stream_attachment));
    if (work == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *(struct stream_attachment *)work->payload = (struct stream_attachment){found.start, flags};
    return stream_enqueue_short(stream, work);
}
