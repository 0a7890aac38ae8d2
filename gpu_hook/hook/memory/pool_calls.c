/* Entry points of stream-ordered memory, and the synchronizations at which a pool gives memory
 * back. During capture an allocation makes a node of a graph and takes nothing now: graph_memory.c
 * charges it when the graph is launched. */
#include "base/guard.h"
#include "charging/charge.h"
#include "swappable/swappable.h"
#include "swappable/managed_mode.h"
#include "compute/pacing.h"
#include "charging/pools.h"
#include "ordered/ordered_pools.h"
#include "gate/residency.h"
#include "charging/retry.h"

typedef CUresult (*capture_query)(CUstream, CUstreamCaptureStatus *);
typedef CUresult (*allocation_call)(CUdeviceptr *, size_t, CUmemoryPool, CUstream);

/* Also for an invalid stream: the driver will report it. */
static bool takes_nothing_now(CUstream stream, capture_query query)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return query(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Call the driver, with retries. The bytes that a pool of this process has to grow by are lent
 * already, as for any allocation. */
static CUresult ask_driver(const struct pool_use *use, CUdeviceptr *pointer, size_t bytes,
                           CUmemoryPool pool, CUstream stream, allocation_call allocate)
{
    /* a device's free memory says nothing of the host's */
    bool acts = use->pool && use->device != QUOTA_HOST;
    struct charge charge = {.acts = acts, .is_on_device = residency_enter(), .device = use->device};
    struct retry retry = RETRY_NONE;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!charge.is_on_device)
        return result;
    do
        result = allocate(pointer, bytes, pool, stream);
    while (retry_is_due(&retry, &charge, result, bytes));
    if (charge.is_on_device)
        residency_leave();
    return result;
}

static CUresult allocate_inside(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                CUstream stream, allocation_call allocate)
{
    struct pool_use use;
    if (!pools_reserve(&use, pool, stream, bytes))
        return charge_refusal();
    CUresult result = ask_driver(&use, pointer, bytes, pool, stream, allocate);
    if (!use.pool)
        return result;
    if (result != CUDA_SUCCESS) {
        pools_release(use.pool, use.bytes, use.growing);
        pools_refresh(); /* on a full device the driver looked for memory in other pools */
        return result;
    }
    CUcontext context = NULL;
    driver()->cuCtxGetCurrent(&context);
    struct allocation allocation = {.key = *pointer,
                                    .bytes = use.bytes,
                                    .context = context,
                                    .device = use.device,
                                    .kind = ALLOCATION_POOL,
                                    .pool = use.pool};
    if (pools_commit(&use) && charge_record(&allocation))
        return result;
    driver()->cuMemFreeAsync(*pointer, stream);
    pools_release(use.pool, use.bytes, 0);
    pools_await_release(use.device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The pools of our own serve first. */
static CUresult allocate_async(const struct ordered_request *request, capture_query query,
                               allocation_call allocate)
{
    CUresult result;
    if (!request->pointer || !request->bytes || takes_nothing_now(request->stream, query) ||
        !guard_enter())
        return allocate(request->pointer, request->bytes, request->pool, request->stream);
    if (!ordered_allocate(request, &result))
        result = allocate_inside(request->pointer, request->bytes, request->pool, request->stream,
                                 allocate);
    guard_leave();
    return result;
}

static CUresult allocate_default(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                 CUstream stream)
{
    (void)pool;
    return driver()->cuMemAllocAsync(pointer, bytes, stream);
}

static CUresult allocate_default_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                      CUstream stream)
{
    (void)pool;
    return driver()->cuMemAllocAsync_ptsz(pointer, bytes, stream);
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    struct ordered_request request = {pointer, bytes, NULL, stream, false};
    return allocate_async(&request, driver()->cuStreamIsCapturing, allocate_default);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    struct ordered_request request = {pointer, bytes, NULL, stream, true};
    return allocate_async(&request, driver()->cuStreamIsCapturing_ptsz, allocate_default_ptsz);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                 CUstream stream)
{
    if (!pool)
        return driver()->cuMemAllocFromPoolAsync(pointer, bytes, pool, stream);
    struct ordered_request request = {pointer, bytes, pool, stream, false};
    return allocate_async(&request, driver()->cuStreamIsCapturing,
                          driver()->cuMemAllocFromPoolAsync);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                      CUstream stream)
{
    if (!pool)
        return driver()->cuMemAllocFromPoolAsync_ptsz(pointer, bytes, pool, stream);
    struct ordered_request request = {pointer, bytes, pool, stream, true};
    return allocate_async(&request, driver()->cuStreamIsCapturing_ptsz,
                          driver()->cuMemAllocFromPoolAsync_ptsz);
}

/* Unified memory freed in a stream's order: the driver has no such free, so the call waits for
 * the stream. */
static CUresult free_paged(CUdeviceptr pointer, CUstream stream,
                           CUresult (*record)(CUevent, CUstream))
{
    CUevent done;
    CUresult result = driver()->cuEventCreate(&done, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        return result;
    result = record(done, stream);
    result = result == CUDA_SUCCESS ? driver()->cuEventSynchronize(done) : result;
    driver()->cuEventDestroy_v2(done);
    return result == CUDA_SUCCESS ? managed_mode_free(pointer) : result;
}

/* The functions of one kind of default stream. */
struct stream_calls {
    capture_query query;
    CUresult (*free)(CUdeviceptr, CUstream);
    CUresult (*record)(CUevent, CUstream);
    bool is_per_thread;
};

static CUresult free_known(const struct release *release, CUdeviceptr pointer, CUstream stream,
                           const struct stream_calls *calls)
{
    switch (release->is_known ? release->allocation.kind : ALLOCATION_NONE) {
    case ALLOCATION_SWAPPABLE:
        return swappable_free_async(&release->allocation, stream, calls->record);
    case ALLOCATION_ORDERED:
        ordered_free_async(&release->allocation, stream, calls->is_per_thread);
        return CUDA_SUCCESS;
    case ALLOCATION_PAGED:
        return free_paged(pointer, stream, calls->record);
    default:
        return calls->free(pointer, stream);
    }
}

/* Within a capture the call makes a node, and the memory lives on. */
static CUresult free_async(CUdeviceptr pointer, CUstream stream, const struct stream_calls *calls)
{
    if (takes_nothing_now(stream, calls->query))
        return calls->free(pointer, stream);
    struct release release;
    release_begin(&release, pointer, SPACE_POINTER);
    CUresult result = free_known(&release, pointer, stream, calls);
    if (release.is_known && release.allocation.kind == ALLOCATION_SWAPPABLE &&
        result == CUDA_SUCCESS)
        release.is_known = false; /* refunded when it is gone */
    release_end(&release, result);
    return result;
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    struct stream_calls calls = {driver()->cuStreamIsCapturing, driver()->cuMemFreeAsync,
                                 driver()->cuEventRecord, false};
    return free_async(pointer, stream, &calls);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    struct stream_calls calls = {driver()->cuStreamIsCapturing_ptsz, driver()->cuMemFreeAsync_ptsz,
                                 driver()->cuEventRecord_ptsz, true};
    return free_async(pointer, stream, &calls);
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    if (!guard_enter())
        return driver()->cuMemPoolCreate(pool, properties);
    bool has_entered = residency_enter();
    CUresult result = has_entered ? pools_create(pool, properties) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        ordered_created(*pool, properties);
    if (has_entered)
        residency_leave();
    guard_leave();
    return result;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags)
{
    if (!guard_enter())
        return driver()->cuMemPoolImportFromShareableHandle(pool, handle, type, flags);
    bool has_entered = residency_enter();
    CUresult result =
        has_entered ? pools_import(pool, handle, type, flags) : CUDA_ERROR_OUT_OF_MEMORY;
    if (has_entered)
        residency_leave();
    guard_leave();
    return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    if (!guard_enter())
        return driver()->cuMemPoolDestroy(pool);
    residency_hold();
    CUresult result = pools_destroy(pool);
    if (result == CUDA_SUCCESS)
        ordered_destroyed(pool);
    residency_release();
    guard_leave();
    return result;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    if (!guard_enter())
        return driver()->cuMemPoolSetAttribute(pool, attribute, value);
    bool has_entered = residency_enter();
    CUresult result =
        has_entered ? pools_set_attribute(pool, attribute, value) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        ordered_attribute_set(pool, attribute, value);
    if (has_entered)
        residency_leave();
    guard_leave();
    return result;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    CUresult result = driver()->cuMemPoolGetAttribute(pool, attribute, value);
    if (result == CUDA_SUCCESS && ordered_is_used() && guard_enter()) {
        ordered_add_attribute(pool, attribute, value);
        guard_leave();
    }
    return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes_to_keep)
{
    CUresult result = driver()->cuMemPoolTrimTo(pool, bytes_to_keep);
    if (result == CUDA_SUCCESS && guard_enter()) {
        pools_refresh_all();
        ordered_trimmed(pool, bytes_to_keep);
        guard_leave();
    }
    return result;
}

static CUresult refresh(CUresult result)
{
    if (guard_enter()) {
        pools_synchronized();
        swappable_sweep();
        if (ordered_are_loose())
            ordered_synchronized();
        guard_leave();
    }
    return result;
}

static bool is_release_due(void)
{
    return pools_are_loose() || swappable_has_pending_frees() || ordered_are_loose();
}

/* Close the work that was launched before the wait; it is polled after it. */
static bool close_work(void)
{
    bool is_paced = pacing_is_used() && guard_enter();
    if (is_paced) {
        pacing_close();
        guard_leave();
    }
    return is_paced;
}

static void look_at_work(void)
{
    if (guard_enter()) {
        pacing_poll();
        guard_leave();
    }
}

#define DEFINE_SYNCHRONIZATION(name, parameters, arguments)           \
    CUresult name parameters                                          \
    {                                                                 \
        bool is_paced = close_work();                                 \
        CUresult result = driver()->name arguments;                   \
        if (is_paced)                                                 \
            look_at_work();                                           \
        return is_release_due() ? refresh(result) : result;           \
    }

DEFINE_SYNCHRONIZATION(cuStreamSynchronize, (CUstream stream), (stream))
DEFINE_SYNCHRONIZATION(cuStreamSynchronize_ptsz, (CUstream stream), (stream))
DEFINE_SYNCHRONIZATION(cuEventSynchronize, (CUevent event), (event))
DEFINE_SYNCHRONIZATION(cuCtxSynchronize, (void), ())
DEFINE_SYNCHRONIZATION(cuCtxSynchronize_v2, (CUcontext context), (context))
