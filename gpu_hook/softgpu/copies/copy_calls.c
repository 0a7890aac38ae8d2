/* One-dimensional copies and the fills of the driver API. Fills of device memory do not wait for
 * the device, as the driver's do not; copies to and from pageable memory do. */
#include "copies/copies.h"
#include "driver/handles.h"
#include "implemented.h"
#include "managed/managed.h"
#include "queue/streams.h"
#include "memory/window.h"

static CUresult copy(uint64_t to, uint64_t from, size_t bytes, CUstream stream, int is_async)
{
    return copy_shape((struct place){to, bytes, 1}, (struct place){from, bytes, 1}, (struct shape){bytes, 1, 1}, stream,
                      is_async);
}

/* The typed copies insist on where their ends lie, as the driver's do. */
static CUresult copy_between(uint64_t to, int to_device, uint64_t from, int from_device, size_t bytes, CUstream stream,
                             int is_async)
{
    if (bytes && ((to_device && !window_is_device(to)) || (from_device && !window_is_device(from)))) {
        struct allocation found;
        uint64_t odd = to_device && !window_is_device(to) ? to : from;
        /* Mapped host memory is a device address too. */
        unsigned flags;
        if (window_find(odd, &found) != 0 && !managed_holds(odd, bytes) &&
            impl_cuMemHostGetFlags(&flags, (void *)odd) != CUDA_SUCCESS) {
            CUresult result = stream_check(stream);
            return result ? result : CUDA_ERROR_INVALID_VALUE;
        }
    }
    return copy(to, from, bytes, stream, is_async);
}

CUresult impl_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    return copy_between(dstDevice, 1, (uint64_t)srcHost, 0, ByteCount, NULL, 0);
}

CUresult impl_cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_between((uint64_t)dstHost, 0, srcDevice, 1, ByteCount, NULL, 0);
}

CUresult impl_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_between(dstDevice, 1, srcDevice, 1, ByteCount, NULL, 0);
}

CUresult impl_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    return copy(dst, src, ByteCount, NULL, 0);
}

CUresult impl_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
    return copy_between(dstDevice, 1, (uint64_t)srcHost, 0, ByteCount, hStream, 1);
}

CUresult impl_cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    return copy_between((uint64_t)dstHost, 0, srcDevice, 1, ByteCount, hStream, 1);
}

CUresult impl_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    return copy_between(dstDevice, 1, srcDevice, 1, ByteCount, hStream, 1);
}

CUresult impl_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    return copy(dst, src, ByteCount, hStream, 1);
}

CUresult impl_cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                           size_t ByteCount)
{
    if (!handles_has(HANDLE_CONTEXT, dstContext) || !handles_has(HANDLE_CONTEXT, srcContext))
        return CUDA_ERROR_INVALID_CONTEXT;
    return copy(dstDevice, srcDevice, ByteCount, NULL, 0);
}

CUresult impl_cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                                CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
    if (!handles_has(HANDLE_CONTEXT, dstContext) || !handles_has(HANDLE_CONTEXT, srcContext))
        return CUDA_ERROR_INVALID_CONTEXT;
    return copy(dstDevice, srcDevice, ByteCount, hStream, 1);
}

static CUresult fill(uint64_t to, size_t pitch, uint32_t value, unsigned bytes, size_t width, size_t height,
                     CUstream stream, int is_async)
{
    return fill_shape((struct place){to, pitch, height}, value, bytes, (struct shape){width, height, 1}, stream,
                      is_async);
}

CUresult impl_cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
    return fill(dstDevice, N, uc, 1, N, 1, NULL, 0);
}

CUresult impl_cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
    return fill(dstDevice, N * 2, us, 2, N, 1, NULL, 0);
}

CUresult impl_cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
    return fill(dstDevice, N * 4, ui, 4, N, 1, NULL, 0);
}

CUresult impl_cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
    return fill(dstDevice, dstPitch, uc, 1, Width, Height, NULL, 0);
}

CUresult impl_cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
    return fill(dstDevice, dstPitch, us, 2, Width, Height, NULL, 0);
}

CUresult impl_cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
    return fill(dstDevice, dstPitch, ui, 4, Width, Height, NULL, 0);
}

CUresult impl_cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
    return fill(dstDevice, N, uc, 1, N, 1, hStream, 1);
}

CUresult impl_cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
    return fill(dstDevice, N * 2, us, 2, N, 1, hStream, 1);
}

CUresult impl_cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
    return fill(dstDevice, N * 4, ui, 4, N, 1, hStream, 1);
}

CUresult impl_cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height,
                                CUstream hStream)
{
    return fill(dstDevice, dstPitch, uc, 1, Width, Height, hStream, 1);
}

CUresult impl_cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                                 size_t Height, CUstream hStream)
{
    return fill(dstDevice, dstPitch, us, 2, Width, Height, hStream, 1);
}

CUresult impl_cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height,
                                 CUstream hStream)
{
    return fill(dstDevice, dstPitch, ui, 4, Width, Height, hStream, 1);
}
