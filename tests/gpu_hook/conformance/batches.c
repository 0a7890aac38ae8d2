/* Batches of copies: every copy of a batch arrives, in the order of the stream; what a batch refuses. Since CUDA 12.8. */
#include "check.h"

static CUstream new_stream(void)
{
    CUstream stream;
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

TEST(every_copy_of_a_batch_arrives)
{
    uint32_t words[64], back[64] = {0};
    CUdeviceptr pointer;
    check_start();
    CUstream stream = new_stream();
    for (unsigned i = 0; i < 64; i++)
        words[i] = i * 3 + 1;
    EXPECT_OK(cuMemAlloc(&pointer, sizeof words));
    CUdeviceptr to[2] = {pointer, pointer + 128}, from[2] = {(CUdeviceptr)(uintptr_t)words,
                                                             (CUdeviceptr)(uintptr_t)(words + 32)};
    CUdeviceptr home[2] = {(CUdeviceptr)(uintptr_t)back, (CUdeviceptr)(uintptr_t)(back + 32)};
    size_t bytes[2] = {128, 128}, first = 0;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    EXPECT_OK(cuMemcpyBatchAsync(to, from, bytes, 2, &attributes, &first, 1, stream));
    EXPECT_OK(cuMemcpyBatchAsync(home, to, bytes, 2, &attributes, &first, 1, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_EQUAL(memcmp(words, back, sizeof back), 0);
}

TEST(a_batch_of_boxes_reaches_arrays)
{
    uint32_t words[64 * 8], back[64 * 8] = {0};
    CUDA_ARRAY_DESCRIPTOR shape = {.Width = 64, .Height = 8, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    CUarray array;
    check_start();
    CUstream stream = new_stream();
    for (unsigned i = 0; i < 64 * 8; i++)
        words[i] = i ^ 0x5a5a;
    EXPECT_OK(cuArrayCreate(&array, &shape));
    CUDA_MEMCPY3D_BATCH_OP in = {.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY,
                                 .extent = {64, 8, 1}, .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    in.src.op.ptr.ptr = (CUdeviceptr)(uintptr_t)words;
    in.dst.op.array.array = array;
    CUDA_MEMCPY3D_BATCH_OP out = {.src.type = CU_MEMCPY_OPERAND_TYPE_ARRAY, .dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER,
                                  .extent = {16, 4, 1}, .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    out.src.op.array.array = array;
    out.src.op.array.offset = (CUoffset3D){8, 2, 0};
    out.dst.op.ptr.ptr = (CUdeviceptr)(uintptr_t)back;
    out.dst.op.ptr.rowLength = 20;
    EXPECT_OK(cuMemcpy3DBatchAsync(1, &in, 0, stream));
    EXPECT_OK(cuMemcpy3DBatchAsync(1, &out, 0, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    for (int y = 0; y < 4; y++)
        EXPECT_EQUAL(memcmp(back + 20 * y, words + 64 * (y + 2) + 8, 64), 0);
}

TEST(a_batch_wants_an_order_for_every_copy)
{
    uint32_t word = 1;
    CUdeviceptr pointer, source = (CUdeviceptr)(uintptr_t)&word;
    size_t bytes = 4, first = 0, late = 1;
    check_start();
    CUstream stream = new_stream();
    EXPECT_OK(cuMemAlloc(&pointer, 4));
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID};
    EXPECT_CODE(cuMemcpyBatchAsync(&pointer, &source, &bytes, 1, &attributes, &first, 1, stream),
                CUDA_ERROR_INVALID_VALUE);
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
    EXPECT_CODE(cuMemcpyBatchAsync(&pointer, &source, &bytes, 1, &attributes, &late, 1, stream),
                CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemcpyBatchAsync(&pointer, &source, &bytes, 1, &attributes, &first, 2, stream),
                CUDA_ERROR_INVALID_VALUE);
}

TEST(a_batch_takes_no_legacy_stream)
{
    uint32_t word = 1;
    CUdeviceptr pointer, source = (CUdeviceptr)(uintptr_t)&word;
    size_t bytes = 4, first = 0;
    check_start();
    EXPECT_OK(cuMemAlloc(&pointer, 4));
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    EXPECT_CODE(cuMemcpyBatchAsync(&pointer, &source, &bytes, 1, &attributes, &first, 1, NULL),
                CUDA_ERROR_INVALID_VALUE);
}
