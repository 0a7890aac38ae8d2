/* Entry points of linear, pitched, managed and stream-ordered memory: each charges, calls, and records or refunds. */
#include "charge.h"
#include "pools.h"
#include "quota.h"

/* A pitch is a multiple of this on every device so far; the true one is known after the call. */
#define PITCH_GRAIN 512u

CUresult cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int bytes)
{
    struct charge charge;
    CUresult result = charge_begin(&charge, CHARGE_CURRENT, quota_rounded(bytes));
    if (result != CUDA_SUCCESS)
        return result;
    result = driver()->cuMemAlloc(pointer, bytes);
    if (charge_end(&charge, result, result == CUDA_SUCCESS ? *pointer : 0, ALLOCATION_LINEAR))
        return result;
    driver()->cuMemFree(*pointer);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    struct charge charge;
    CUresult result = charge_begin(&charge, CHARGE_CURRENT, quota_rounded(bytes));
    if (result != CUDA_SUCCESS)
        return result;
    result = driver()->cuMemAlloc_v2(pointer, bytes);
    if (charge_end(&charge, result, result == CUDA_SUCCESS ? *pointer : 0, ALLOCATION_LINEAR))
        return result;
    driver()->cuMemFree_v2(*pointer);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
    struct charge charge;
    CUresult result = charge_begin(&charge, CHARGE_CURRENT, quota_rounded(bytes));
    if (result != CUDA_SUCCESS)
        return result;
    result = driver()->cuMemAllocManaged(pointer, bytes, flags);
    if (charge_end(&charge, result, result == CUDA_SUCCESS ? *pointer : 0, ALLOCATION_LINEAR))
        return result;
    driver()->cuMemFree_v2(*pointer);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static uint64_t guess_pitched_bytes(uint64_t width, uint64_t height)
{
    uint64_t bytes;
    if (width > UINT64_MAX - PITCH_GRAIN)
        return UINT64_MAX;
    uint64_t pitch = (width + PITCH_GRAIN - 1) / PITCH_GRAIN * PITCH_GRAIN;
    return __builtin_mul_overflow(pitch, height, &bytes) ? UINT64_MAX : quota_rounded(bytes);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width, unsigned int height,
                         unsigned int element_bytes)
{
    struct charge charge;
    CUresult result = charge_begin(&charge, CHARGE_CURRENT, guess_pitched_bytes(width, height));
    if (result != CUDA_SUCCESS)
        return result;
    result = driver()->cuMemAllocPitch(pointer, pitch, width, height, element_bytes);
    bool fits = result != CUDA_SUCCESS || charge_raise(&charge, quota_rounded((uint64_t)*pitch * height));
    if (charge_end(&charge, fits ? result : CUDA_ERROR_OUT_OF_MEMORY, result == CUDA_SUCCESS ? *pointer : 0,
                   ALLOCATION_LINEAR) &&
        fits)
        return result;
    driver()->cuMemFree(*pointer);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                            unsigned int element_bytes)
{
    struct charge charge;
    CUresult result = charge_begin(&charge, CHARGE_CURRENT, guess_pitched_bytes(width, height));
    if (result != CUDA_SUCCESS)
        return result;
    result = driver()->cuMemAllocPitch_v2(pointer, pitch, width, height, element_bytes);
    bool fits = result != CUDA_SUCCESS || charge_raise(&charge, quota_rounded((uint64_t)*pitch * height));
    if (charge_end(&charge, fits ? result : CUDA_ERROR_OUT_OF_MEMORY, result == CUDA_SUCCESS ? *pointer : 0,
                   ALLOCATION_LINEAR) &&
        fits)
        return result;
    driver()->cuMemFree_v2(*pointer);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFree(CUdeviceptr_v1 pointer)
{
    struct release release;
    release_begin(&release, pointer);
    CUresult result = driver()->cuMemFree(pointer);
    release_end(&release, result);
    return result;
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    struct release release;
    release_begin(&release, pointer);
    CUresult result = driver()->cuMemFree_v2(pointer);
    release_end(&release, result);
    return result;
}

typedef CUresult (*capture_query)(CUstream, CUstreamCaptureStatus *);

/* During capture an allocation makes a graph node and takes no memory now. */
static bool is_capturing(CUstream stream, capture_query query)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return query(stream, &status) == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static CUresult allocate_async(CUdeviceptr *pointer, size_t bytes, CUstream stream, capture_query query,
                               CUresult (*allocate)(CUdeviceptr *, size_t, CUstream))
{
    if (is_capturing(stream, query)) {
        charge_unaccounted();
        return allocate(pointer, bytes, stream);
    }
    struct charge charge;
    CUresult result = charge_begin(&charge, pools_stream_device(stream), quota_rounded(bytes));
    if (result != CUDA_SUCCESS)
        return result;
    result = allocate(pointer, bytes, stream);
    if (charge_end(&charge, result, result == CUDA_SUCCESS ? *pointer : 0, ALLOCATION_POOL))
        return result;
    driver()->cuMemFreeAsync(*pointer, stream);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return allocate_async(pointer, bytes, stream, driver()->cuStreamIsCapturing, driver()->cuMemAllocAsync);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return allocate_async(pointer, bytes, stream, driver()->cuStreamIsCapturing_ptsz,
                          driver()->cuMemAllocAsync_ptsz);
}

static CUresult allocate_from_pool(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream,
                                   capture_query query,
                                   CUresult (*allocate)(CUdeviceptr *, size_t, CUmemoryPool, CUstream))
{
    if (is_capturing(stream, query)) {
        charge_unaccounted();
        return allocate(pointer, bytes, pool, stream);
    }
    struct charge charge;
    CUresult result = charge_begin(&charge, pools_device(pool, stream), quota_rounded(bytes));
    if (result != CUDA_SUCCESS)
        return result;
    result = allocate(pointer, bytes, pool, stream);
    if (charge_end(&charge, result, result == CUDA_SUCCESS ? *pointer : 0, ALLOCATION_POOL))
        return result;
    driver()->cuMemFreeAsync(*pointer, stream);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    return allocate_from_pool(pointer, bytes, pool, stream, driver()->cuStreamIsCapturing,
                              driver()->cuMemAllocFromPoolAsync);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    return allocate_from_pool(pointer, bytes, pool, stream, driver()->cuStreamIsCapturing_ptsz,
                              driver()->cuMemAllocFromPoolAsync_ptsz);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    struct release release;
    release_begin(&release, pointer);
    CUresult result = driver()->cuMemFreeAsync(pointer, stream);
    release_end(&release, result);
    return result;
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    struct release release;
    release_begin(&release, pointer);
    CUresult result = driver()->cuMemFreeAsync_ptsz(pointer, stream);
    release_end(&release, result);
    return result;
}
