/* Texture and surface objects and texture references: what can be bound, what they say of it, and what is refused. */
#include "check.h"

static CUarray new_array(size_t width, size_t height, unsigned flags)
{
    CUDA_ARRAY3D_DESCRIPTOR wanted = {.Width = width, .Height = height, .Flags = flags,
                                      .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUarray array;
    EXPECT_OK(cuArray3DCreate(&array, &wanted));
    return array;
}

static CUDA_RESOURCE_DESC of_array(CUarray array)
{
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    resource.res.array.hArray = array;
    return resource;
}

static CUDA_TEXTURE_DESC clamped(void)
{
    CUDA_TEXTURE_DESC texture = {.filterMode = CU_TR_FILTER_MODE_POINT};
    for (int i = 0; i < 3; i++)
        texture.addressMode[i] = CU_TR_ADDRESS_MODE_CLAMP;
    return texture;
}

static CUDA_RESOURCE_DESC of_linear(CUdeviceptr pointer, size_t bytes)
{
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR};
    resource.res.linear.devPtr = pointer;
    resource.res.linear.format = CU_AD_FORMAT_FLOAT;
    resource.res.linear.numChannels = 1;
    resource.res.linear.sizeInBytes = bytes;
    return resource;
}

TEST(a_texture_tells_what_it_was_made_of)
{
    CUtexObject object = 0;
    CUDA_RESOURCE_DESC found;
    CUDA_TEXTURE_DESC found_texture;
    CUDA_RESOURCE_VIEW_DESC view;
    check_start();
    CUarray array = new_array(64, 64, 0);
    CUDA_RESOURCE_DESC resource = of_array(array);
    CUDA_TEXTURE_DESC texture = clamped();
    EXPECT_OK(cuTexObjectCreate(&object, &resource, &texture, NULL));
    EXPECT(object != 0);
    EXPECT_OK(cuTexObjectGetResourceDesc(&found, object));
    EXPECT(found.resType == CU_RESOURCE_TYPE_ARRAY && found.res.array.hArray == array);
    EXPECT_OK(cuTexObjectGetTextureDesc(&found_texture, object));
    EXPECT_EQUAL(found_texture.addressMode[0], CU_TR_ADDRESS_MODE_CLAMP);
    EXPECT_CODE(cuTexObjectGetResourceViewDesc(&view, object), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuTexObjectDestroy(object));
}

TEST(linear_memory_makes_a_texture_when_it_is_aligned)
{
    CUtexObject object;
    CUdeviceptr pointer;
    int alignment;
    check_start();
    EXPECT_OK(cuDeviceGetAttribute(&alignment, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 0));
    EXPECT_OK(cuMemAlloc(&pointer, MIB));
    CUDA_TEXTURE_DESC texture = clamped();
    CUDA_RESOURCE_DESC resource = of_linear(pointer, 4096);
    EXPECT_OK(cuTexObjectCreate(&object, &resource, &texture, NULL));
    EXPECT_OK(cuTexObjectDestroy(object));
    if (alignment > 4) {
        resource = of_linear(pointer + 4, 4096);
        EXPECT_CODE(cuTexObjectCreate(&object, &resource, &texture, NULL), CUDA_ERROR_INVALID_VALUE);
    }
}

TEST(rows_make_a_texture_when_their_pitch_is_aligned)
{
    CUtexObject object;
    CUdeviceptr pointer;
    size_t pitch;
    int unit;
    check_start();
    EXPECT_OK(cuDeviceGetAttribute(&unit, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 0));
    EXPECT_OK(cuMemAllocPitch(&pointer, &pitch, 400, 16, 4));
    CUDA_TEXTURE_DESC texture = clamped();
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_PITCH2D};
    resource.res.pitch2D.devPtr = pointer;
    resource.res.pitch2D.format = CU_AD_FORMAT_FLOAT;
    resource.res.pitch2D.numChannels = 1;
    resource.res.pitch2D.width = 100;
    resource.res.pitch2D.height = 16;
    resource.res.pitch2D.pitchInBytes = pitch;
    EXPECT_OK(cuTexObjectCreate(&object, &resource, &texture, NULL));
    EXPECT_OK(cuTexObjectDestroy(object));
    resource.res.pitch2D.pitchInBytes = pitch + (size_t)unit / 2;
    EXPECT_CODE(cuTexObjectCreate(&object, &resource, &texture, NULL), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_texture_of_nothing_is_an_invalid_value)
{
    CUtexObject object;
    check_start();
    CUDA_TEXTURE_DESC texture = clamped();
    CUDA_RESOURCE_DESC resource = of_array(new_array(64, 64, 0));
    EXPECT_CODE(cuTexObjectCreate(NULL, &resource, &texture, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuTexObjectCreate(&object, NULL, &texture, NULL), CUDA_ERROR_INVALID_VALUE);
    resource.flags = 1;
    EXPECT_CODE(cuTexObjectCreate(&object, &resource, &texture, NULL), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_surface_is_of_an_array_that_allows_it)
{
    CUsurfObject object = 0;
    CUDA_RESOURCE_DESC found;
    CUdeviceptr pointer;
    check_start();
    CUarray array = new_array(64, 64, CUDA_ARRAY3D_SURFACE_LDST);
    CUDA_RESOURCE_DESC resource = of_array(array);
    EXPECT_OK(cuSurfObjectCreate(&object, &resource));
    EXPECT_OK(cuSurfObjectGetResourceDesc(&found, object));
    EXPECT(found.res.array.hArray == array);
    EXPECT_OK(cuSurfObjectDestroy(object));
    EXPECT_OK(cuMemAlloc(&pointer, MIB));
    resource = of_linear(pointer, 4096);
    EXPECT_CODE(cuSurfObjectCreate(&object, &resource), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_texture_needs_a_context)
{
    CUtexObject object;
    CUDA_TEXTURE_DESC texture = clamped();
    CUDA_RESOURCE_DESC resource = of_linear(512, 4096);
    EXPECT_OK(cuInit(0));
    EXPECT_CODE(cuTexObjectCreate(&object, &resource, &texture, NULL), CUDA_ERROR_INVALID_CONTEXT);
}

TEST(a_texture_reference_keeps_what_is_set_on_it)
{
    CUtexref reference;
    CUarray found;
    CUarray_format format;
    CUfilter_mode filter;
    CUaddress_mode mode;
    CUdeviceptr pointer;
    unsigned flags;
    int channels;
    check_start();
    EXPECT_OK(cuTexRefCreate(&reference));
    EXPECT_CODE(cuTexRefGetArray(&found, reference), CUDA_ERROR_INVALID_VALUE);
    CUarray array = new_array(64, 64, 0);
    EXPECT_OK(cuTexRefSetArray(reference, array, CU_TRSA_OVERRIDE_FORMAT));
    EXPECT_OK(cuTexRefGetArray(&found, reference));
    EXPECT(found == array);
    EXPECT_CODE(cuTexRefGetAddress(&pointer, reference), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuTexRefSetFilterMode(reference, CU_TR_FILTER_MODE_LINEAR));
    EXPECT_OK(cuTexRefGetFilterMode(&filter, reference));
    EXPECT_EQUAL(filter, CU_TR_FILTER_MODE_LINEAR);
    EXPECT_OK(cuTexRefSetAddressMode(reference, 1, CU_TR_ADDRESS_MODE_CLAMP));
    EXPECT_OK(cuTexRefGetAddressMode(&mode, reference, 1));
    EXPECT_EQUAL(mode, CU_TR_ADDRESS_MODE_CLAMP);
    EXPECT_OK(cuTexRefSetFlags(reference, CU_TRSF_NORMALIZED_COORDINATES));
    EXPECT_OK(cuTexRefGetFlags(&flags, reference));
    EXPECT_EQUAL(flags, CU_TRSF_NORMALIZED_COORDINATES);
    EXPECT_OK(cuTexRefSetFormat(reference, CU_AD_FORMAT_HALF, 2));
    EXPECT_OK(cuTexRefGetFormat(&format, &channels, reference));
    EXPECT(format == CU_AD_FORMAT_HALF && channels == 2);
    EXPECT_OK(cuTexRefDestroy(reference));
}
