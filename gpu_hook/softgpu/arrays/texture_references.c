/* Texture references, deprecated since CUDA 10: records of what was set. Those that modules declare are not known here. */
#include <stdlib.h>
#include <string.h>

#include "arrays/arrays.h"
#include "driver/handles.h"
#include "implemented.h"
#include "arrays/textures.h"

/* A CUtexref is a pointer to this. resType is -1 while nothing is bound. */
struct reference {
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUarray_format format;
    int channels;
};

static struct reference *reference_of(CUtexref handle)
{
    return handles_has(HANDLE_TEXTURE_REFERENCE, handle) ? (struct reference *)handle : NULL;
}

CUresult impl_cuTexRefCreate(CUtexref *pTexRef)
{
    struct context *context;
    CUresult result = context_current(&context);
    if (result || pTexRef == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    struct reference *reference = calloc(1, sizeof *reference);
    if (reference == NULL || handles_add(HANDLE_TEXTURE_REFERENCE, reference) != 0) {
        free(reference);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    reference->resource.resType = (CUresourcetype)-1;
    reference->format = CU_AD_FORMAT_FLOAT;
    reference->channels = 1;
    *pTexRef = (CUtexref)reference;
    return CUDA_SUCCESS;
}

CUresult impl_cuTexRefDestroy(CUtexref hTexRef)
{
    if (!handles_remove(HANDLE_TEXTURE_REFERENCE, hTexRef))
        return CUDA_ERROR_INVALID_VALUE;
    free(hTexRef);
    return CUDA_SUCCESS;
}

/* Binds what can be read as a texture, in place of what was bound. */
static CUresult bind(CUtexref handle, const CUDA_RESOURCE_DESC *resource)
{
    struct context *context;
    struct reference *reference = reference_of(handle);
    CUresult result = context_current(&context);
    if (result || reference == NULL || texture_check_resource(resource, context->device))
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    reference->resource = *resource;
    return CUDA_SUCCESS;
}

/* The flags of both must be CU_TRSA_OVERRIDE_FORMAT: the format is the array's. */
CUresult impl_cuTexRefSetArray(CUtexref hTexRef, CUarray hArray, unsigned int Flags)
{
    CUDA_RESOURCE_DESC wanted = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = hArray};
    CUresult result = Flags == CU_TRSA_OVERRIDE_FORMAT ? bind(hTexRef, &wanted) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        struct reference *reference = reference_of(hTexRef);
        reference->format = array_of(hArray)->descriptor.Format;
        reference->channels = (int)array_of(hArray)->descriptor.NumChannels;
    }
    return result;
}

CUresult impl_cuTexRefSetMipmappedArray(CUtexref hTexRef, CUmipmappedArray hMipmappedArray, unsigned int Flags)
{
    CUDA_RESOURCE_DESC wanted = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY,
                                 .res.mipmap.hMipmappedArray = hMipmappedArray};
    return Flags == CU_TRSA_OVERRIDE_FORMAT ? bind(hTexRef, &wanted) : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuTexRefSetAddress_v2(size_t *ByteOffset, CUtexref hTexRef, CUdeviceptr dptr, size_t bytes)
{
    struct reference *reference = reference_of(hTexRef);
    if (reference == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_RESOURCE_DESC wanted = {.resType = CU_RESOURCE_TYPE_LINEAR};
    wanted.res.linear.devPtr = dptr;
    wanted.res.linear.sizeInBytes = bytes;
    wanted.res.linear.format = reference->format;
    wanted.res.linear.numChannels = (unsigned)reference->channels;
    CUresult result = bind(hTexRef, &wanted);
    if (result == CUDA_SUCCESS && ByteOffset)
        *ByteOffset = 0;
    return result;
}

CUresult impl_cuTexRefSetAddress2D_v3(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR *desc, CUdeviceptr dptr,
                                      size_t Pitch)
{
    if (desc == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_RESOURCE_DESC wanted = {.resType = CU_RESOURCE_TYPE_PITCH2D};
    wanted.res.pitch2D.devPtr = dptr;
    wanted.res.pitch2D.format = desc->Format;
    wanted.res.pitch2D.numChannels = desc->NumChannels;
    wanted.res.pitch2D.width = desc->Width;
    wanted.res.pitch2D.height = desc->Height;
    wanted.res.pitch2D.pitchInBytes = Pitch;
    return bind(hTexRef, &wanted);
}

CUresult impl_cuTexRefGetAddress_v2(CUdeviceptr *pdptr, CUtexref hTexRef)
{
    struct reference *reference = reference_of(hTexRef);
    if (pdptr == NULL || reference == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    int is_linear = reference->resource.resType == CU_RESOURCE_TYPE_LINEAR;
    if (!is_linear && reference->resource.resType != CU_RESOURCE_TYPE_PITCH2D)
        return CUDA_ERROR_INVALID_VALUE;
    *pdptr = is_linear ? reference->resource.res.linear.devPtr : reference->resource.res.pitch2D.devPtr;
    return CUDA_SUCCESS;
}

CUresult impl_cuTexRefGetArray(CUarray *phArray, CUtexref hTexRef)
{
    struct reference *reference = reference_of(hTexRef);
    if (phArray == NULL || reference == NULL || reference->resource.resType != CU_RESOURCE_TYPE_ARRAY)
        return CUDA_ERROR_INVALID_VALUE;
    *phArray = reference->resource.res.array.hArray;
    return CUDA_SUCCESS;
}

CUresult impl_cuTexRefGetMipmappedArray(CUmipmappedArray *phMipmappedArray, CUtexref hTexRef)
{
    struct reference *reference = reference_of(hTexRef);
    if (phMipmappedArray == NULL || reference == NULL ||
        reference->resource.resType != CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
        return CUDA_ERROR_INVALID_VALUE;
    *phMipmappedArray = reference->resource.res.mipmap.hMipmappedArray;
    return CUDA_SUCCESS;
}

CUresult impl_cuTexRefSetFilterMode(CUtexref hTexRef, CUfilter_mode fm)
{
    struct reference *reference = reference_of(hTexRef);
    if (reference == NULL || (unsigned)fm > CU_TR_FILTER_MODE_LINEAR)
        return CUDA_ERROR_INVALID_VALUE;
    reference->texture.filterMode = fm;
    return CUDA_SUCCESS;
}

CUresult impl_cuTexRefGetFilterMode(CUfilter_mode *pfm, CUtexref hTexRef)
{
    struct reference *reference = reference_of(hTexRef);
    if (reference == NULL || pfm == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pfm = reference->texture.filterMode;
    return CUDA_SUCCESS;
}

CUresult impl_cuTexRefSetMipmapFilterMode(CUtexref hTexRef, CUfilter_mode fm)
{
    struct reference *reference = reference_of(hTexRef);
    if (reference == NULL || (unsigned)fm > CU_TR_FILTER_MODE_LINEAR)
        return CUDA_ERROR_INVALID_VALUE;
    reference->texture.mipmapFilterMode = fm;
    return CUDA_SUCCESS;
}

CUresult impl_cuTexRefGetMipmapFilterMode(CUfilter_mode *pfm, CUtexref hTexRef)
{
    struct reference *reference = reference_of(hTexRef);
    if (reference == NULL || pfm == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pfm = reference->texture.mipmapFilterMode;
    return CUDA_SUCCESS;
}

CUresult impl_cuTexRefSetMipmapLevelBias(CUtexref hTexRef, float bias)
{
    struct reference *reference = reference_of(hTexRef);
    if (reference == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    reference->texture.mipmapLevelBias = bias;
    return CUDA_SUCCESS;
}

CUresult impl_cuTexRefGetMipmapLevelBias(float *pbias, CUtexref hTexRef)
{
    struct reference *reference = reference_of(hTexRef);
    if (reference == NULL || pbias == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pbias = reference->texture.mipmapLevelBias;
    return CUDA_SUCCESS;
}

CUresult impl_cuTexRefSetMaxAnisotropy(CUtexref hTexRef, unsigned int maxAniso)
{
    struct reference *reference = reference_of(hTexRef);
    if (reference == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    reference->texture.maxAnisotropy = maxAniso;
    return CUDA_SUCCESS;
}

CUresult impl_cuTexRefGetMaxAnisotropy(int *pmaxAniso, CUtexref hTexRef)
{
    struct reference *reference = reference_of(hTexRef);
    if (reference == NULL || pmaxAniso == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pmaxAniso = (int)reference->texture.maxAnisotropy;
    return CUDA_SUCCESS;
}

CUresult impl_cuTexRefSetFlags(CUtexref hTexRef, unsigned int Flags)
{
    struct reference *reference = reference_of(hTexRef);
    if (reference == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    reference->texture.flags = Flags;
    return CUDA_SUCCESS;
}

CUresult impl_cuTexRefGetFlags(unsigned int *pFlags, CUtexref hTexRef)
{
    struct reference *reference = reference_of(hTexRef);
    if (reference == NULL || pFlags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pFlags = reference->texture.flags;
    return CUDA_SUCCESS;
}

CUresult impl_cuTexRefSetFormat(CUtexref hTexRef, CUarray_format fmt, int NumPackedComponents)
{
    struct element element;
    struct reference *reference = reference_of(hTexRef);
    if (reference == NULL || array_element(fmt, (unsigned)NumPackedComponents, &element))
        return CUDA_ERROR_INVALID_VALUE;
    reference->format = fmt;
    reference->channels = NumPackedComponents;
    return CUDA_SUCCESS;
}

CUresult impl_cuTexRefGetFormat(CUarray_format *pFormat, int *pNumChannels, CUtexref hTexRef)
{
    struct reference *reference = reference_of(hTexRef);
    if (reference == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (pFormat)
        *pFormat = reference->format;
    if (pNumChannels)
        *pNumChannels = reference->channels;
    return CUDA_SUCCESS;
}

CUresult impl_cuTexRefSetAddressMode(CUtexref hTexRef, int dim, CUaddress_mode am)
{
    struct reference *reference = reference_of(hTexRef);
    if (reference == NULL || dim < 0 || dim > 2 || (unsigned)am > CU_TR_ADDRESS_MODE_BORDER)
        return CUDA_ERROR_INVALID_VALUE;
    reference->texture.addressMode[dim] = am;
    return CUDA_SUCCESS;
}

CUresult impl_cuTexRefGetAddressMode(CUaddress_mode *pam, CUtexref hTexRef, int dim)
{
    struct reference *reference = reference_of(hTexRef);
    if (reference == NULL || pam == NULL || dim < 0 || dim > 2)
        return CUDA_ERROR_INVALID_VALUE;
    *pam = reference->texture.addressMode[dim];
    return CUDA_SUCCESS;
}

CUresult impl_cuTexRefSetMipmapLevelClamp(CUtexref hTexRef, float minMipmapLevelClamp, float maxMipmapLevelClamp)
{
    struct reference *reference = reference_of(hTexRef);
    if (reference == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    reference->texture.minMipmapLevelClamp = minMipmapLevelClamp;
    reference->texture.maxMipmapLevelClamp = maxMipmapLevelClamp;
    return CUDA_SUCCESS;
}

CUresult impl_cuTexRefGetMipmapLevelClamp(float *pminMipmapLevelClamp, float *pmaxMipmapLevelClamp, CUtexref hTexRef)
{
    struct reference *reference = reference_of(hTexRef);
    if (reference == NULL || pminMipmapLevelClamp == NULL || pmaxMipmapLevelClamp == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pminMipmapLevelClamp = reference->texture.minMipmapLevelClamp;
    *pmaxMipmapLevelClamp = reference->texture.maxMipmapLevelClamp;
    return CUDA_SUCCESS;
}

CUresult impl_cuTexRefSetBorderColor(CUtexref hTexRef, float *pBorderColor)
{
    struct reference *reference = reference_of(hTexRef);
    if (reference == NULL || pBorderColor == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(reference->texture.borderColor, pBorderColor, sizeof reference->texture.borderColor);
    return CUDA_SUCCESS;
}

CUresult impl_cuTexRefGetBorderColor(float *pBorderColor, CUtexref hTexRef)
{
    struct reference *reference = reference_of(hTexRef);
    if (reference == NULL || pBorderColor == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(pBorderColor, reference->texture.borderColor, sizeof reference->texture.borderColor);
    return CUDA_SUCCESS;
}
