/* The array functions of the API before 3.2, whose extents have 32 bits. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "implemented.h"

CUresult impl_cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *pAllocateArray)
{
    if (pAllocateArray == NULL)
        return impl_cuArrayCreate_v2(pHandle, NULL);
    CUDA_ARRAY_DESCRIPTOR wide = {pAllocateArray->Width, pAllocateArray->Height, pAllocateArray->Format,
                                  pAllocateArray->NumChannels};
    return impl_cuArrayCreate_v2(pHandle, &wide);
}

CUresult impl_cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1 *pArrayDescriptor, CUarray hArray)
{
    CUDA_ARRAY_DESCRIPTOR wide;
    CUresult result = impl_cuArrayGetDescriptor_v2(pArrayDescriptor ? &wide : NULL, hArray);
    if (result == CUDA_SUCCESS)
        *pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR_v1){(unsigned)wide.Width, (unsigned)wide.Height, wide.Format,
                                                       wide.NumChannels};
    return result;
}

CUresult impl_cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *pAllocateArray)
{
    if (pAllocateArray == NULL)
        return impl_cuArray3DCreate_v2(pHandle, NULL);
    CUDA_ARRAY3D_DESCRIPTOR wide = {pAllocateArray->Width,  pAllocateArray->Height,      pAllocateArray->Depth,
                                    pAllocateArray->Format, pAllocateArray->NumChannels, pAllocateArray->Flags};
    return impl_cuArray3DCreate_v2(pHandle, &wide);
}

CUresult impl_cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1 *pArrayDescriptor, CUarray hArray)
{
    CUDA_ARRAY3D_DESCRIPTOR wide;
    CUresult result = impl_cuArray3DGetDescriptor_v2(pArrayDescriptor ? &wide : NULL, hArray);
    if (result == CUDA_SUCCESS)
        *pArrayDescriptor = (CUDA_ARRAY3D_DESCRIPTOR_v1){(unsigned)wide.Width, (unsigned)wide.Height,
                                                         (unsigned)wide.Depth, wide.Format,
                                                         wide.NumChannels,     wide.Flags};
    return result;
}
