/* Two- and three-dimensional copies between linear memory. Arrays do not exist here: they are NOT_SUPPORTED. */
#include "copies.h"
#include "implemented.h"

/* A corner of a pitched volume as a place. */
static CUresult corner(CUmemorytype type, const void *host, CUdeviceptr device, size_t pitch, size_t height, size_t x,
                       size_t y, size_t z, struct place *place)
{
    switch ((int)type) {
    case CU_MEMORYTYPE_HOST:
        place->address = (uint64_t)host;
        break;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        place->address = device;
        break;
    case CU_MEMORYTYPE_ARRAY:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (place->address == 0)
        return CUDA_ERROR_INVALID_VALUE;
    place->pitch = pitch;
    place->height = height;
    place->address += (z * height + y) * pitch + x;
    return CUDA_SUCCESS;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *copy, CUstream stream, int is_async)
{
    struct place to, from;
    if (copy == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    size_t from_pitch = copy->srcPitch ? copy->srcPitch : copy->WidthInBytes + copy->srcXInBytes;
    size_t to_pitch = copy->dstPitch ? copy->dstPitch : copy->WidthInBytes + copy->dstXInBytes;
    if (copy->WidthInBytes + copy->srcXInBytes > from_pitch || copy->WidthInBytes + copy->dstXInBytes > to_pitch)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = corner(copy->srcMemoryType, copy->srcHost, copy->srcDevice, from_pitch, copy->Height,
                             copy->srcXInBytes, copy->srcY, 0, &from);
    if (result == CUDA_SUCCESS)
        result = corner(copy->dstMemoryType, copy->dstHost, copy->dstDevice, to_pitch, copy->Height,
                        copy->dstXInBytes, copy->dstY, 0, &to);
    struct shape shape = {copy->WidthInBytes, copy->Height, 1};
    return result ? result : copy_shape(to, from, shape, stream, is_async);
}

CUresult impl_cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, NULL, 0);
}

CUresult impl_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, NULL, 0);
}

CUresult impl_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
    return copy_2d(pCopy, hStream, 1);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *copy, CUstream stream, int is_async)
{
    struct place to, from;
    if (copy == NULL || copy->srcLOD || copy->dstLOD)
        return CUDA_ERROR_INVALID_VALUE;
    size_t from_pitch = copy->srcPitch ? copy->srcPitch : copy->WidthInBytes + copy->srcXInBytes;
    size_t to_pitch = copy->dstPitch ? copy->dstPitch : copy->WidthInBytes + copy->dstXInBytes;
    size_t from_height = copy->srcHeight ? copy->srcHeight : copy->Height + copy->srcY;
    size_t to_height = copy->dstHeight ? copy->dstHeight : copy->Height + copy->dstY;
    if (copy->WidthInBytes + copy->srcXInBytes > from_pitch || copy->WidthInBytes + copy->dstXInBytes > to_pitch ||
        copy->Height + copy->srcY > from_height || copy->Height + copy->dstY > to_height)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = corner(copy->srcMemoryType, copy->srcHost, copy->srcDevice, from_pitch, from_height,
                             copy->srcXInBytes, copy->srcY, copy->srcZ, &from);
    if (result == CUDA_SUCCESS)
        result = corner(copy->dstMemoryType, copy->dstHost, copy->dstDevice, to_pitch, to_height, copy->dstXInBytes,
                        copy->dstY, copy->dstZ, &to);
    struct shape shape = {copy->WidthInBytes, copy->Height, copy->Depth};
    return result ? result : copy_shape(to, from, shape, stream, is_async);
}

CUresult impl_cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
    return copy_3d(pCopy, NULL, 0);
}

CUresult impl_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    return copy_3d(pCopy, hStream, 1);
}

/* All memory of the machine has one address space: the contexts say nothing that the addresses do not. */
static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *copy, CUstream stream, int is_async)
{
    if (copy == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D plain = {
        .srcXInBytes = copy->srcXInBytes, .srcY = copy->srcY, .srcZ = copy->srcZ, .srcLOD = copy->srcLOD,
        .srcMemoryType = copy->srcMemoryType, .srcHost = copy->srcHost, .srcDevice = copy->srcDevice,
        .srcPitch = copy->srcPitch, .srcHeight = copy->srcHeight, .dstXInBytes = copy->dstXInBytes,
        .dstY = copy->dstY, .dstZ = copy->dstZ, .dstLOD = copy->dstLOD, .dstMemoryType = copy->dstMemoryType,
        .dstHost = copy->dstHost, .dstDevice = copy->dstDevice, .dstPitch = copy->dstPitch,
        .dstHeight = copy->dstHeight, .WidthInBytes = copy->WidthInBytes, .Height = copy->Height,
        .Depth = copy->Depth};
    return copy_3d(&plain, stream, is_async);
}

CUresult impl_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy)
{
    return copy_3d_peer(pCopy, NULL, 0);
}

CUresult impl_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
    return copy_3d_peer(pCopy, hStream, 1);
}
