/* Mipmapped arrays and their levels; what an array that is mapped later will take. */
#include "check.h"

static CUDA_ARRAY3D_DESCRIPTOR shape_of(size_t width, size_t height, unsigned flags)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){.Width = width, .Height = height, .Flags = flags,
                                     .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 4};
}

static CUmipmappedArray new_mipmap(size_t width, size_t height, unsigned levels)
{
    CUDA_ARRAY3D_DESCRIPTOR wanted = shape_of(width, height, 0);
    CUmipmappedArray mipmap;
    EXPECT_OK(cuMipmappedArrayCreate(&mipmap, &wanted, levels));
    return mipmap;
}

TEST(each_level_has_half_of_the_one_before)
{
    CUDA_ARRAY3D_DESCRIPTOR found;
    CUarray level;
    check_start();
    CUmipmappedArray mipmap = new_mipmap(64, 16, 7);
    for (unsigned i = 0; i < 7; i++) {
        EXPECT_OK(cuMipmappedArrayGetLevel(&level, mipmap, i));
        EXPECT_OK(cuArray3DGetDescriptor(&found, level));
        EXPECT_EQUAL(found.Width, 64 >> i);
        EXPECT_EQUAL(found.Height, 16 >> i ? 16 >> i : 1);
        EXPECT_EQUAL(found.Depth, 0);
    }
    EXPECT_OK(cuMipmappedArrayDestroy(mipmap));
}

TEST(levels_hold_their_own_bytes)
{
    static unsigned char in[2][64 * 64 * 4], out[64 * 64 * 4];
    CUarray level[2];
    check_start();
    CUmipmappedArray mipmap = new_mipmap(64, 64, 2);
    for (int i = 0; i < 2; i++) {
        memset(in[i], 17 + i, sizeof in[i]);
        EXPECT_OK(cuMipmappedArrayGetLevel(&level[i], mipmap, (unsigned)i));
        CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = in[i], .srcPitch = 256,
                              .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = level[i],
                              .WidthInBytes = 256u >> i, .Height = 64u >> i};
        EXPECT_OK(cuMemcpy2D(&copy));
    }
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = level[0],
                          .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = out, .dstPitch = 256,
                          .WidthInBytes = 256, .Height = 64};
    EXPECT_OK(cuMemcpy2D(&copy));
    EXPECT_EQUAL(memcmp(out, in[0], sizeof out), 0);
}

TEST(the_number_of_levels_is_kept_within_what_the_extents_allow)
{
    CUarray level;
    check_start();
    CUmipmappedArray mipmap = new_mipmap(16, 16, 1000);
    EXPECT_OK(cuMipmappedArrayGetLevel(&level, mipmap, 4));
    EXPECT_CODE(cuMipmappedArrayGetLevel(&level, mipmap, 5), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMipmappedArrayGetLevel(&level, new_mipmap(16, 16, 0), 0));
}

TEST(a_mipmapped_array_takes_memory_until_it_is_destroyed)
{
    size_t before, during, total;
    check_start();
    EXPECT_OK(cuMemGetInfo(&before, &total));
    CUmipmappedArray mipmap = new_mipmap(2048, 2048, 12);
    EXPECT_OK(cuMemGetInfo(&during, &total));
    EXPECT(before - during >= 21 * MIB);
    EXPECT_OK(cuMipmappedArrayDestroy(mipmap));
    EXPECT_TAKEN(before, 0);
}

TEST(an_array_that_is_mapped_later_says_what_it_will_take_and_takes_nothing)
{
    CUDA_ARRAY3D_DESCRIPTOR wanted = shape_of(2048, 2048, CUDA_ARRAY3D_DEFERRED_MAPPING);
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs = {0};
    size_t before, total;
    CUarray array;
    check_start();
    EXPECT_OK(cuMemGetInfo(&before, &total));
    CUresult made = cuArray3DCreate(&array, &wanted);
    if (made == CUDA_ERROR_NOT_SUPPORTED || made == CUDA_ERROR_INVALID_VALUE)
        SKIP("this device has no arrays that are mapped later");
    EXPECT_OK(made);
    EXPECT_TAKEN(before, 0);
    EXPECT_OK(cuArrayGetMemoryRequirements(&needs, array, 0));
    EXPECT(needs.size >= 16 * MIB && needs.alignment > 0 && needs.size % needs.alignment == 0);
    EXPECT_OK(cuArrayDestroy(array));
}

TEST(an_array_with_memory_tells_no_requirements)
{
    CUDA_ARRAY3D_DESCRIPTOR wanted = shape_of(64, 64, 0);
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
    CUarray array;
    check_start();
    EXPECT_OK(cuArray3DCreate(&array, &wanted));
    EXPECT_CODE(cuArrayGetMemoryRequirements(&needs, array, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMipmappedArrayGetMemoryRequirements(&needs, new_mipmap(64, 64, 3), 0), CUDA_ERROR_INVALID_VALUE);
}
