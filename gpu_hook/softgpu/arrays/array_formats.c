/* The table of formats. */
#include "arrays/array_formats.h"

#include <stddef.h>

/* Formats whose channels are the caller's to choose: 1, 2 or 4. */
static unsigned channel_bytes(CUarray_format format)
{
    switch ((int)format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 0;
    }
}

struct fixed {
    int first, last;
    unsigned channels;
    struct element element;
};

/* Formats that name their channels. */
static const struct fixed fixed_formats[] = {
    {CU_AD_FORMAT_UNORM_INT8X1, CU_AD_FORMAT_UNORM_INT8X1, 1, {1, 1}},
    {CU_AD_FORMAT_UNORM_INT8X2, CU_AD_FORMAT_UNORM_INT8X2, 2, {2, 1}},
    {CU_AD_FORMAT_UNORM_INT8X4, CU_AD_FORMAT_UNORM_INT8X4, 4, {4, 1}},
    {CU_AD_FORMAT_UNORM_INT16X1, CU_AD_FORMAT_UNORM_INT16X1, 1, {2, 1}},
    {CU_AD_FORMAT_UNORM_INT16X2, CU_AD_FORMAT_UNORM_INT16X2, 2, {4, 1}},
    {CU_AD_FORMAT_UNORM_INT16X4, CU_AD_FORMAT_UNORM_INT16X4, 4, {8, 1}},
    {CU_AD_FORMAT_SNORM_INT8X1, CU_AD_FORMAT_SNORM_INT8X1, 1, {1, 1}},
    {CU_AD_FORMAT_SNORM_INT8X2, CU_AD_FORMAT_SNORM_INT8X2, 2, {2, 1}},
    {CU_AD_FORMAT_SNORM_INT8X4, CU_AD_FORMAT_SNORM_INT8X4, 4, {4, 1}},
    {CU_AD_FORMAT_SNORM_INT16X1, CU_AD_FORMAT_SNORM_INT16X1, 1, {2, 1}},
    {CU_AD_FORMAT_SNORM_INT16X2, CU_AD_FORMAT_SNORM_INT16X2, 2, {4, 1}},
    {CU_AD_FORMAT_SNORM_INT16X4, CU_AD_FORMAT_SNORM_INT16X4, 4, {8, 1}},
    {CU_AD_FORMAT_UNORM_INT_101010_2, CU_AD_FORMAT_UNORM_INT_101010_2, 4, {4, 1}},
    {CU_AD_FORMAT_BC1_UNORM, CU_AD_FORMAT_BC1_UNORM_SRGB, 4, {8, 4}},
    {CU_AD_FORMAT_BC2_UNORM, CU_AD_FORMAT_BC3_UNORM_SRGB, 4, {16, 4}},
    {CU_AD_FORMAT_BC4_UNORM, CU_AD_FORMAT_BC4_SNORM, 1, {8, 4}},
    {CU_AD_FORMAT_BC5_UNORM, CU_AD_FORMAT_BC5_SNORM, 2, {16, 4}},
    {CU_AD_FORMAT_BC6H_UF16, CU_AD_FORMAT_BC6H_SF16, 3, {16, 4}},
    {CU_AD_FORMAT_BC7_UNORM, CU_AD_FORMAT_BC7_UNORM_SRGB, 4, {16, 4}},
};

static int is_video(int format)
{
    return format == CU_AD_FORMAT_NV12 || (format >= CU_AD_FORMAT_P010 && format <= CU_AD_FORMAT_Y410) ||
           (format >= CU_AD_FORMAT_Y416 && format <= CU_AD_FORMAT_YUV444_16bit_SemiPlanar);
}

CUresult array_element(CUarray_format format, unsigned channels, struct element *element)
{
    *element = (struct element){channel_bytes(format) * channels, 1};
    if (element->bytes)
        return channels == 1 || channels == 2 || channels == 4 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < sizeof fixed_formats / sizeof *fixed_formats; i++) {
        const struct fixed *fixed = &fixed_formats[i];
        if ((int)format < fixed->first || (int)format > fixed->last)
            continue;
        *element = fixed->element;
        return channels == fixed->channels ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    return is_video((int)format) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}
