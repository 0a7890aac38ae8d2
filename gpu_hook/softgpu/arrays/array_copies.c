/* Copies of bytes in a row from and to one-dimensional arrays. */
#include "arrays/arrays.h"
#include "copies/copies.h"
#include "implemented.h"
#include "queue/streams.h"
#include "memory/window.h"

/* `bytes` from `offset` of a 1D array; *element tells the size of its elements. */
static CUresult find_array(CUarray handle, size_t offset, size_t bytes, struct place *place, unsigned *element)
{
    struct array *array = array_of(handle);
    if (array == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (array->rows > 1 || array->slices > 1)
        return CUDA_ERROR_INVALID_VALUE;
    *element = array->element.bytes;
    return array_place(handle, offset, 0, 0, &(struct shape){bytes, 1, 1}, place);
}

static CUresult to_array(CUarray array, size_t offset, uint64_t from, int from_device, size_t bytes, CUstream stream,
                         int is_async)
{
    struct place place;
    unsigned element;
    CUresult result = stream_check(stream);
    result = result ? result : find_array(array, offset, bytes, &place, &element);
    if (result || (from_device && bytes && !window_is_device(from)))
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    struct place source = {from, bytes, 1};
    return copy_shape(place, source, (struct shape){bytes, 1, 1}, stream, is_async);
}

static CUresult from_array(uint64_t to, int to_device, CUarray array, size_t offset, size_t bytes, CUstream stream,
                           int is_async)
{
    struct place place;
    unsigned element;
    CUresult result = stream_check(stream);
    result = result ? result : find_array(array, offset, bytes, &place, &element);
    if (result || (to_device && bytes && !window_is_device(to)))
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    struct place target = {to, bytes, 1};
    return copy_shape(target, place, (struct shape){bytes, 1, 1}, stream, is_async);
}

CUresult impl_cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount)
{
    return to_array(dstArray, dstOffset, srcDevice, 1, ByteCount, NULL, 0);
}

CUresult impl_cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return from_array(dstDevice, 1, srcArray, srcOffset, ByteCount, NULL, 0);
}

CUresult impl_cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount)
{
    return to_array(dstArray, dstOffset, (uint64_t)srcHost, 0, ByteCount, NULL, 0);
}

CUresult impl_cuMemcpyAtoH_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return from_array((uint64_t)dstHost, 0, srcArray, srcOffset, ByteCount, NULL, 0);
}

CUresult impl_cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount,
                                   CUstream hStream)
{
    return to_array(dstArray, dstOffset, (uint64_t)srcHost, 0, ByteCount, hStream, 1);
}

CUresult impl_cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                                   CUstream hStream)
{
    return from_array((uint64_t)dstHost, 0, srcArray, srcOffset, ByteCount, hStream, 1);
}

/* The formats may differ, the elements' sizes may not. */
CUresult impl_cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                              size_t ByteCount)
{
    struct place to, from;
    unsigned to_element, from_element;
    CUresult result = stream_check(NULL);
    result = result ? result : find_array(dstArray, dstOffset, ByteCount, &to, &to_element);
    result = result ? result : find_array(srcArray, srcOffset, ByteCount, &from, &from_element);
    if (result || to_element != from_element || ByteCount % to_element)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    return copy_shape(to, from, (struct shape){ByteCount, 1, 1}, NULL, 0);
}
