/* Batches of copies. Each copy of a batch runs in the order of the stream, which is one of the
 * orders that are allowed. */
#include "arrays/arrays.h"
#include "copies/copies.h"
#include "implemented.h"
#include "queue/streams.h"

/* A batch takes no legacy default stream. */
static CUresult check_stream(CUstream handle, unsigned *device)
{
    struct stream *stream;
    struct context *context;
    CUresult result = stream_resolve(handle, &stream, &context);
    if (result == CUDA_SUCCESS)
        *device = context->physical;
    return result == CUDA_SUCCESS && stream->kind == STREAM_LEGACY ? CUDA_ERROR_INVALID_VALUE : result;
}

static int is_order(CUmemcpySrcAccessOrder order)
{
    return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

static CUresult check_attributes(const CUmemcpyAttributes *attributes, const size_t *firsts, size_t attribute_count,
                                 size_t count)
{
    if (attributes == NULL || firsts == NULL || attribute_count == 0 || attribute_count > count || firsts[0] != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < attribute_count; i++)
        if (!is_order(attributes[i].srcAccessOrder) || firsts[i] >= count || (i && firsts[i] <= firsts[i - 1]))
            return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult copy_linear(uint64_t to, uint64_t from, size_t bytes, CUstream stream,
                            const unsigned *trial_device)
{
    struct place to_place = {to, bytes, 1}, from_place = {from, bytes, 1};
    struct shape shape = {bytes, 1, 1};
    return trial_device ? copy_check(to_place, from_place, shape, *trial_device)
                        : copy_shape(to_place, from_place, shape, stream, 1);
}

/* All of it is checked before any of it is queued; *failed is the copy at fault, or SIZE_MAX. */
static CUresult copy_batch(CUdeviceptr *to, CUdeviceptr *from, const size_t *bytes, size_t count,
                           const CUmemcpyAttributes *attributes, const size_t *firsts, size_t attribute_count,
                           size_t *failed, CUstream stream)
{
    unsigned device;
    *failed = SIZE_MAX;
    if (to == NULL || from == NULL || bytes == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_stream(stream, &device);
    result = result ? result : check_attributes(attributes, firsts, attribute_count, count);
    for (int is_trial = 1; is_trial >= 0; is_trial--)
        for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
            result = copy_linear(to[i], from[i], bytes[i], stream, is_trial ? &device : NULL);
            if (result)
                *failed = i;
        }
    return result;
}

CUresult impl_cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                    CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream)
{
    size_t failed;
    return copy_batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, &failed, hStream);
}

CUresult impl_cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                 CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,
                                 CUstream hStream)
{
    size_t failed;
    CUresult result = copy_batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, &failed, hStream);
    if (result && failIdx)
        *failIdx = failed;
    return result;
}

/* An operand that is an array has the array's elements; a pointer has those of the array at the
 * other end, or bytes. */
static CUresult find_place(const CUmemcpy3DOperand *operand, const struct shape *shape, unsigned element,
                           struct place *place)
{
    size_t x, row, height = operand->op.ptr.layerHeight;
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        const CUoffset3D *offset = &operand->op.array.offset;
        return __builtin_mul_overflow(offset->x, element, &x)
                   ? CUDA_ERROR_INVALID_VALUE
                   : array_place(operand->op.array.array, x, offset->y, offset->z, shape, place);
    }
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_POINTER || operand->op.ptr.ptr == 0 ||
        __builtin_mul_overflow(operand->op.ptr.rowLength, element, &row) || (row && row < shape->width) ||
        (height && height < shape->height))
        return CUDA_ERROR_INVALID_VALUE;
    *place = (struct place){operand->op.ptr.ptr, row ? row : shape->width, height ? height : shape->height};
    return CUDA_SUCCESS;
}

/* The size of an operand's elements, 0 for a pointer. */
static CUresult element_bytes(const CUmemcpy3DOperand *operand, unsigned *bytes)
{
    *bytes = 0;
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY)
        return CUDA_SUCCESS;
    struct array *array = array_of(operand->op.array.array);
    if (array)
        *bytes = array->element.bytes;
    return array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult copy_operation(const CUDA_MEMCPY3D_BATCH_OP *operation, CUstream stream,
                               const unsigned *trial_device)
{
    struct place to, from;
    unsigned to_bytes, from_bytes;
    const CUextent3D *extent = &operation->extent;
    CUresult result = element_bytes(&operation->src, &from_bytes);
    result = result ? result : element_bytes(&operation->dst, &to_bytes);
    if (result || !is_order(operation->srcAccessOrder) || !extent->width || !extent->height || !extent->depth ||
        (to_bytes && from_bytes && to_bytes != from_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    unsigned element = to_bytes ? to_bytes : from_bytes ? from_bytes : 1;
    struct shape shape = {0, extent->height, extent->depth};
    if (__builtin_mul_overflow(extent->width, element, &shape.width))
        return CUDA_ERROR_INVALID_VALUE;
    result = find_place(&operation->src, &shape, element, &from);
    result = result ? result : find_place(&operation->dst, &shape, element, &to);
    if (result)
        return CUDA_ERROR_INVALID_VALUE;
    return trial_device ? copy_check(to, from, shape, *trial_device) : copy_shape(to, from, shape, stream, 1);
}

static CUresult copy_3d_batch(size_t count, const CUDA_MEMCPY3D_BATCH_OP *operations, size_t *failed,
                              unsigned long long flags, CUstream stream)
{
    unsigned device;
    *failed = SIZE_MAX;
    if (count == 0 || operations == NULL || flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_stream(stream, &device);
    for (int is_trial = 1; is_trial >= 0; is_trial--)
        for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
            result = copy_operation(&operations[i], stream, is_trial ? &device : NULL);
            if (result)
                *failed = i;
        }
    return result;
}

CUresult impl_cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags,
                                      CUstream hStream)
{
    size_t failed;
    return copy_3d_batch(numOps, opList, &failed, flags, hStream);
}

CUresult impl_cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
                                   unsigned long long flags, CUstream hStream)
{
    size_t failed;
    CUresult result = copy_3d_batch(numOps, opList, &failed, flags, hStream);
    if (result && failIdx)
        *failIdx = failed;
    return result;
}
