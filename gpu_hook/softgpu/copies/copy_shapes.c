/* Two- and three-dimensional copies between host memory, device memory and arrays. */
#include "arrays/arrays.h"
#include "copies/copies.h"
#include "driver/driver.h"
#include "implemented.h"
#include "queue/streams.h"
#include "queue/work_items.h"

/* One end of a copy, as both parameter structs describe it. */
struct end {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t pitch, height, x, y, z;
};

static CUresult find_place(const struct end *end, const struct shape *shape, struct place *place)
{
    if (end->type == CU_MEMORYTYPE_ARRAY)
        return array_place(end->array, end->x, end->y, end->z, shape, place);
    int is_host = end->type == CU_MEMORYTYPE_HOST;
    if (!is_host && end->type != CU_MEMORYTYPE_DEVICE && end->type != CU_MEMORYTYPE_UNIFIED)
        return CUDA_ERROR_INVALID_VALUE;
    int most_pitch = 0;
    impl_cuDeviceGetAttribute(&most_pitch, CU_DEVICE_ATTRIBUTE_MAX_PITCH, 0);
    place->address = is_host ? (uint64_t)end->host : end->device;
    uint64_t width, height, offset;
    if (place->address == 0 || end->pitch > (size_t)most_pitch || __builtin_add_overflow(shape->width, end->x, &width) ||
        __builtin_add_overflow(shape->height, end->y, &height))
        return CUDA_ERROR_INVALID_VALUE;
    place->pitch = end->pitch ? end->pitch : width;
    place->height = end->height ? end->height : height;
    if (width > place->pitch || (shape->depth > 1 && height > place->height))
        return CUDA_ERROR_INVALID_VALUE;
    int is_beyond = __builtin_mul_overflow(end->z, place->height, &offset) ||
                    __builtin_add_overflow(offset, end->y, &offset) ||
                    __builtin_mul_overflow(offset, place->pitch, &offset) ||
                    __builtin_add_overflow(offset, end->x, &offset) ||
                    __builtin_add_overflow(place->address, offset, &place->address);
    return is_beyond ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult copy_ends(const struct end *to, const struct end *from, struct shape shape, CUstream stream,
                          int is_async)
{
    struct place to_place, from_place;
    CUresult result = stream_check(stream);
    result = result ? result : find_place(from, &shape, &from_place);
    result = result ? result : find_place(to, &shape, &to_place);
    return result ? result : copy_shape(to_place, from_place, shape, stream, is_async);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *copy, CUstream stream, int is_async)
{
    if (copy == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct end from = {copy->srcMemoryType, copy->srcHost, copy->srcDevice,   copy->srcArray, copy->srcPitch,
                       copy->Height,        copy->srcXInBytes, copy->srcY, 0};
    struct end to = {copy->dstMemoryType, copy->dstHost, copy->dstDevice,   copy->dstArray, copy->dstPitch,
                     copy->Height,        copy->dstXInBytes, copy->dstY, 0};
    return copy_ends(&to, &from, (struct shape){copy->WidthInBytes, copy->Height, 1}, stream, is_async);
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

static CUresult read_3d(const CUDA_MEMCPY3D *copy, struct place *to, struct place *from, struct shape *shape)
{
    if (copy == NULL || copy->srcLOD || copy->dstLOD)
        return CUDA_ERROR_INVALID_VALUE;
    struct end source = {copy->srcMemoryType, copy->srcHost,     copy->srcDevice, copy->srcArray, copy->srcPitch,
                         copy->srcHeight,     copy->srcXInBytes, copy->srcY,      copy->srcZ};
    struct end target = {copy->dstMemoryType, copy->dstHost,     copy->dstDevice, copy->dstArray, copy->dstPitch,
                         copy->dstHeight,     copy->dstXInBytes, copy->dstY,      copy->dstZ};
    *shape = (struct shape){copy->WidthInBytes, copy->Height, copy->Depth};
    CUresult result = find_place(&source, shape, from);
    return result ? result : find_place(&target, shape, to);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *copy, CUstream stream, int is_async)
{
    struct place to, from;
    struct shape shape;
    CUresult result = stream_check(stream);
    result = result ? result : read_3d(copy, &to, &from, &shape);
    return result ? result : copy_shape(to, from, shape, stream, is_async);
}

CUresult work_of_copy(const CUDA_MEMCPY3D *copy, unsigned device, struct work_item **work)
{
    struct place to, from;
    struct shape shape;
    CUresult result = read_3d(copy, &to, &from, &shape);
    return result ? result : copy_work(to, from, shape, device, work);
}

CUresult impl_cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
    return copy_3d(pCopy, NULL, 0);
}

CUresult impl_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    return copy_3d(pCopy, hStream, 1);
}
