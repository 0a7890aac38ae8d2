/* Arrays: their shapes, what they say of themselves, copies from and to them, what they cost, and their errors. */
#include "check.h"

static CUDA_ARRAY3D_DESCRIPTOR shape_of(size_t width, size_t height, size_t depth, unsigned flags)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){.Width = width, .Height = height, .Depth = depth, .Flags = flags,
                                     .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
}

static CUarray new_array(size_t width, size_t height, size_t depth, unsigned flags)
{
    CUDA_ARRAY3D_DESCRIPTOR wanted = shape_of(width, height, depth, flags);
    CUarray array;
    EXPECT_OK(cuArray3DCreate(&array, &wanted));
    return array;
}

static uint32_t words[64 * 32 * 4], back[64 * 32 * 4];

static void count_up(void)
{
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
        words[i] = i * 2654435761u;
    memset(back, 0, sizeof back);
}

/* A row of bytes at an offset of an array, as one end of a copy. */
static CUDA_MEMCPY2D row_to(CUarray array, size_t offset, size_t bytes)
{
    return (CUDA_MEMCPY2D){.dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = array, .dstXInBytes = offset,
                           .WidthInBytes = bytes, .Height = 1};
}

static CUDA_MEMCPY2D row_from(CUarray array, size_t offset, size_t bytes)
{
    return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = array, .srcXInBytes = offset,
                           .WidthInBytes = bytes, .Height = 1};
}

static CUDA_MEMCPY2D host_to_row(CUarray array, size_t offset, const void *host, size_t bytes)
{
    CUDA_MEMCPY2D copy = row_to(array, offset, bytes);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = host;
    return copy;
}

static CUDA_MEMCPY2D row_to_host(void *host, CUarray array, size_t offset, size_t bytes)
{
    CUDA_MEMCPY2D copy = row_from(array, offset, bytes);
    copy.dstMemoryType = CU_MEMORYTYPE_HOST, copy.dstHost = host;
    return copy;
}

TEST(a_row_of_bytes_comes_back_from_an_array)
{
    check_start();
    count_up();
    CUarray array = new_array(256, 0, 0, 0);
    CUDA_MEMCPY2D in = host_to_row(array, 64, words, 512), out = row_to_host(back, array, 68, 508);
    EXPECT_OK(cuMemcpy2D(&in));
    EXPECT_OK(cuMemcpy2D(&out));
    EXPECT_EQUAL(memcmp(back, words + 1, 508), 0);
}

TEST(a_row_of_bytes_moves_between_arrays_and_the_device)
{
    CUdeviceptr pointer;
    check_start();
    count_up();
    CUarray one = new_array(256, 0, 0, 0), two = new_array(128, 0, 0, 0);
    EXPECT_OK(cuMemAlloc(&pointer, 1024));
    EXPECT_OK(cuMemcpyHtoD(pointer, words, 1024));
    CUDA_MEMCPY2D in = row_to(one, 0, 1024), across = row_to(two, 256, 256), out = row_from(two, 256, 256);
    in.srcMemoryType = CU_MEMORYTYPE_DEVICE, in.srcDevice = pointer;
    across.srcMemoryType = CU_MEMORYTYPE_ARRAY, across.srcArray = one, across.srcXInBytes = 512;
    out.dstMemoryType = CU_MEMORYTYPE_DEVICE, out.dstDevice = pointer;
    EXPECT_OK(cuMemcpy2D(&in));
    EXPECT_OK(cuMemcpy2D(&across));
    EXPECT_OK(cuMemsetD32(pointer, 0, 256));
    EXPECT_OK(cuMemcpy2D(&out));
    EXPECT_OK(cuMemcpyDtoH(back, pointer, 256));
    EXPECT_EQUAL(memcmp(back, words + 128, 256), 0);
}

TEST(rows_move_in_the_order_of_a_stream)
{
    CUstream stream;
    uint32_t *locked;
    check_start();
    count_up();
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuMemAllocHost((void **)&locked, 2048));
    memcpy(locked, words, 1024);
    CUarray array = new_array(256, 0, 0, 0);
    CUDA_MEMCPY2D in = host_to_row(array, 0, locked, 1024), out = row_to_host(locked + 256, array, 0, 1024);
    EXPECT_OK(cuMemcpy2DAsync(&in, stream));
    EXPECT_OK(cuMemcpy2DAsync(&out, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_EQUAL(memcmp(locked, locked + 256, 1024), 0);
}

TEST(a_rectangle_of_an_array_is_read_and_written)
{
    check_start();
    count_up();
    CUarray array = new_array(64, 32, 0, 0);
    CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = words, .srcPitch = 256,
                        .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = array, .WidthInBytes = 256, .Height = 32};
    CUDA_MEMCPY2D out = {.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = array, .srcXInBytes = 40, .srcY = 7,
                         .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back, .dstPitch = 80,
                         .WidthInBytes = 80, .Height = 5};
    EXPECT_OK(cuMemcpy2D(&in));
    EXPECT_OK(cuMemcpy2D(&out));
    for (int y = 0; y < 5; y++)
        EXPECT_EQUAL(memcmp(back + 20 * y, words + 64 * (7 + y) + 10, 80), 0);
}

TEST(a_box_of_an_array_is_read_and_written)
{
    check_start();
    count_up();
    CUarray array = new_array(64, 32, 4, 0), other = new_array(16, 8, 2, 0);
    CUDA_MEMCPY3D in = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = words, .srcPitch = 256, .srcHeight = 32,
                        .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = array,
                        .WidthInBytes = 256, .Height = 32, .Depth = 4};
    CUDA_MEMCPY3D across = {.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = array, .srcXInBytes = 16, .srcY = 3,
                            .srcZ = 1, .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = other,
                            .WidthInBytes = 64, .Height = 8, .Depth = 2};
    CUDA_MEMCPY3D out = {.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = other,
                         .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back, .dstPitch = 64, .dstHeight = 8,
                         .WidthInBytes = 64, .Height = 8, .Depth = 2};
    EXPECT_OK(cuMemcpy3D(&in));
    EXPECT_OK(cuMemcpy3D(&across));
    EXPECT_OK(cuMemcpy3D(&out));
    for (int z = 0; z < 2; z++)
        for (int y = 0; y < 8; y++)
            EXPECT_EQUAL(memcmp(back + (z * 8 + y) * 16, words + ((z + 1) * 32 + y + 3) * 64 + 4, 64), 0);
}

TEST(layers_are_reached_as_slices)
{
    check_start();
    count_up();
    CUarray array = new_array(64, 0, 4, CUDA_ARRAY3D_LAYERED);
    CUDA_MEMCPY3D in = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = words, .srcPitch = 256, .srcHeight = 1,
                        .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = array,
                        .WidthInBytes = 256, .Height = 1, .Depth = 4};
    CUDA_MEMCPY3D out = {.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = array, .srcZ = 2,
                         .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back, .dstPitch = 256, .dstHeight = 1,
                         .WidthInBytes = 256, .Height = 1, .Depth = 1};
    EXPECT_OK(cuMemcpy3D(&in));
    EXPECT_OK(cuMemcpy3D(&out));
    EXPECT_EQUAL(memcmp(back, words + 128, 256), 0);
}

TEST(an_array_says_how_it_was_made)
{
    CUDA_ARRAY3D_DESCRIPTOR found;
    CUDA_ARRAY_DESCRIPTOR flat;
    check_start();
    CUarray array = new_array(48, 48, 12, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED);
    EXPECT_OK(cuArray3DGetDescriptor(&found, array));
    EXPECT(found.Width == 48 && found.Height == 48 && found.Depth == 12 && found.NumChannels == 1);
    EXPECT_EQUAL(found.Format, CU_AD_FORMAT_UNSIGNED_INT32);
    EXPECT_EQUAL(found.Flags, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED);
    EXPECT_OK(cuArrayGetDescriptor(&flat, new_array(17, 5, 0, 0)));
    EXPECT(flat.Width == 17 && flat.Height == 5);
    EXPECT_OK(cuArray3DGetDescriptor(&found, new_array(17, 0, 0, 0)));
    EXPECT(found.Width == 17 && found.Height == 0 && found.Depth == 0);
}

TEST(an_array_takes_the_memory_of_its_elements_until_it_is_destroyed)
{
    size_t before, during, total;
    check_start();
    EXPECT_OK(cuMemGetInfo(&before, &total));
    CUarray array = new_array(2048, 2048, 0, 0);
    EXPECT_OK(cuMemGetInfo(&during, &total));
    EXPECT(before - during >= 16 * MIB);
    EXPECT_OK(cuArrayDestroy(array));
    EXPECT_TAKEN(before, 0);
}

TEST(every_format_and_channel_count_makes_an_array)
{
    static const CUarray_format formats[] = {CU_AD_FORMAT_UNSIGNED_INT8,  CU_AD_FORMAT_UNSIGNED_INT16,
                                             CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_SIGNED_INT8,
                                             CU_AD_FORMAT_SIGNED_INT16,   CU_AD_FORMAT_SIGNED_INT32,
                                             CU_AD_FORMAT_HALF,           CU_AD_FORMAT_FLOAT};
    static const unsigned bytes[] = {1, 2, 4, 1, 2, 4, 2, 4};
    check_start();
    count_up();
    for (unsigned i = 0; i < sizeof formats / sizeof *formats; i++)
        for (unsigned channels = 1; channels <= 4; channels *= 2) {
            CUDA_ARRAY_DESCRIPTOR wanted = {.Width = 64, .Format = formats[i], .NumChannels = channels};
            size_t whole = 64 * bytes[i] * channels;
            CUarray array;
            EXPECT_OK(cuArrayCreate(&array, &wanted));
            CUDA_MEMCPY2D in = host_to_row(array, 0, words, whole), out = row_to_host(back, array, 0, whole);
            CUDA_MEMCPY2D beyond = host_to_row(array, 0, words, whole + bytes[i]);
            EXPECT_OK(cuMemcpy2D(&in));
            EXPECT_OK(cuMemcpy2D(&out));
            EXPECT_EQUAL(memcmp(back, words, whole), 0);
            EXPECT_CODE(cuMemcpy2D(&beyond), CUDA_ERROR_INVALID_VALUE);
            EXPECT_OK(cuArrayDestroy(array));
        }
}

TEST(more_than_the_device_is_out_of_memory_for_arrays)
{
    CUDA_ARRAY3D_DESCRIPTOR wanted = shape_of(16384, 16384, 2048, CUDA_ARRAY3D_LAYERED); /* 2 TiB */
    CUarray array;
    check_start();
    EXPECT_CODE(cuArray3DCreate(&array, &wanted), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST(a_box_outside_of_an_array_is_an_invalid_value)
{
    check_start();
    CUarray array = new_array(64, 32, 4, 0);
    CUDA_MEMCPY3D fit = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = words, .srcPitch = 256, .srcHeight = 32,
                         .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = array,
                         .WidthInBytes = 256, .Height = 32, .Depth = 4};
    CUDA_MEMCPY3D wrong = fit;
    EXPECT_OK(cuMemcpy3D(&fit));
    wrong.dstXInBytes = 4;
    EXPECT_CODE(cuMemcpy3D(&wrong), CUDA_ERROR_INVALID_VALUE);
    wrong = fit, wrong.dstY = 1;
    EXPECT_CODE(cuMemcpy3D(&wrong), CUDA_ERROR_INVALID_VALUE);
    wrong = fit, wrong.dstZ = 1;
    EXPECT_CODE(cuMemcpy3D(&wrong), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_corner_between_elements_is_an_invalid_value)
{
    check_start();
    CUDA_MEMCPY2D wrong = {.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = new_array(64, 32, 0, 0), .srcXInBytes = 2,
                           .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back, .WidthInBytes = 8, .Height = 1};
    EXPECT_CODE(cuMemcpy2D(&wrong), CUDA_ERROR_INVALID_VALUE);
}

TEST(shapes_that_do_not_exist_are_invalid_values)
{
    static const struct {
        size_t width, height, depth;
        unsigned flags;
    } wrong[] = {{0, 0, 0, 0},
                 {0, 8, 0, 0},
                 {8, 0, 8, 0},
                 {8, 0, 0, CUDA_ARRAY3D_LAYERED},
                 {8, 16, 6, CUDA_ARRAY3D_CUBEMAP},
                 {8, 8, 5, CUDA_ARRAY3D_CUBEMAP},
                 {8, 8, 7, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED},
                 {(size_t)1 << 31, 0, 0, 0}};
    CUarray array;
    check_start();
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CUDA_ARRAY3D_DESCRIPTOR shape = shape_of(wrong[i].width, wrong[i].height, wrong[i].depth, wrong[i].flags);
        EXPECT_CODE(cuArray3DCreate(&array, &shape), CUDA_ERROR_INVALID_VALUE);
    }
    CUDA_ARRAY3D_DESCRIPTOR shape = shape_of(8, 8, 0, 0);
    shape.NumChannels = 5;
    EXPECT_CODE(cuArray3DCreate(&array, &shape), CUDA_ERROR_INVALID_VALUE);
    shape.NumChannels = 1, shape.Format = (CUarray_format)0x7777;
    EXPECT_CODE(cuArray3DCreate(&array, &shape), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuArray3DCreate(NULL, &shape), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuArray3DCreate(&array, NULL), CUDA_ERROR_INVALID_VALUE);
}

TEST(an_array_needs_a_context)
{
    CUDA_ARRAY3D_DESCRIPTOR wanted = shape_of(8, 8, 0, 0);
    CUarray array;
    EXPECT_OK(cuInit(0));
    EXPECT_CODE(cuArray3DCreate(&array, &wanted), CUDA_ERROR_INVALID_CONTEXT);
}
