/* The array functions of the driver API. */
#include "arrays/arrays.h"
#include "queue/captures.h"

#include <string.h>

#include "driver/driver.h"
#include "driver/handles.h"
#include "implemented.h"

CUresult impl_cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
    struct storage *storage;
    struct context *context;
    CUresult result = context_current(&context);
    result = result ? result : capture_check_unsafe();
    if (result || pHandle == NULL || pAllocateArray == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    result = storage_open(pAllocateArray, 1, 0, &storage);
    if (result == CUDA_SUCCESS)
        *pHandle = (CUarray)&storage->levels[0];
    return result;
}

CUresult impl_cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
    if (pAllocateArray == NULL)
        return impl_cuArray3DCreate_v2(pHandle, NULL);
    CUDA_ARRAY3D_DESCRIPTOR wide = {.Width = pAllocateArray->Width,
                                    .Height = pAllocateArray->Height,
                                    .Format = pAllocateArray->Format,
                                    .NumChannels = pAllocateArray->NumChannels};
    return impl_cuArray3DCreate_v2(pHandle, &wide);
}

CUresult impl_cuArrayDestroy(CUarray hArray)
{
    struct array *array = array_of(hArray);
    if (array == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (array->storage->is_mipmapped) /* a level goes with all levels */
        return CUDA_ERROR_INVALID_VALUE;
    if (!handles_remove(HANDLE_ARRAY, array))
        return CUDA_ERROR_INVALID_HANDLE;
    storage_close(array->storage);
    return CUDA_SUCCESS;
}

CUresult impl_cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    struct context *context;
    CUresult result = context_current(&context);
    struct array *array = array_of(hArray);
    if (result || pArrayDescriptor == NULL || array == NULL)
        return result ? result : pArrayDescriptor ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    *pArrayDescriptor = array->descriptor;
    return CUDA_SUCCESS;
}

CUresult impl_cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    CUDA_ARRAY3D_DESCRIPTOR wide;
    CUresult result = impl_cuArray3DGetDescriptor_v2(pArrayDescriptor ? &wide : NULL, hArray);
    if (result == CUDA_SUCCESS)
        *pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){
            .Width = wide.Width, .Height = wide.Height, .Format = wide.Format, .NumChannels = wide.NumChannels};
    return result;
}

/* Arrays whose mapping is deferred have requirements; other arrays have their memory. */
static CUresult tell_requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *wanted, const struct storage *storage, CUdevice device)
{
    if (wanted == NULL || driver_check_device(device) ||
        !(storage->levels[0].descriptor.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING))
        return CUDA_ERROR_INVALID_VALUE;
    *wanted = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = storage->bytes, .alignment = 65536};
    return CUDA_SUCCESS;
}

CUresult impl_cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements, CUarray array,
                                           CUdevice device)
{
    struct array *found = array_of(array);
    return found && !found->storage->is_mipmapped ? tell_requirements(memoryRequirements, found->storage, device)
                                                  : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
                                                    CUmipmappedArray mipmap, CUdevice device)
{
    return handles_has(HANDLE_MIPMAP, mipmap)
               ? tell_requirements(memoryRequirements, (struct storage *)mipmap, device)
               : CUDA_ERROR_INVALID_VALUE;
}

static unsigned most_levels(const CUDA_ARRAY3D_DESCRIPTOR *array)
{
    const int is_layered = (array->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    size_t longest = array->Width > array->Height ? array->Width : array->Height;
    if (!is_layered && array->Depth > longest)
        longest = array->Depth;
    unsigned levels = 1;
    for (; longest > 1; longest >>= 1)
        levels++;
    return levels;
}

CUresult impl_cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                     unsigned int numMipmapLevels)
{
    struct context *context;
    struct storage *storage;
    CUresult result = context_current(&context);
    result = result ? result : capture_check_unsafe();
    if (result || pHandle == NULL || pMipmappedArrayDesc == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    unsigned most = most_levels(pMipmappedArrayDesc);
    unsigned levels = numMipmapLevels < 1 ? 1 : numMipmapLevels > most ? most : numMipmapLevels;
    result = storage_open(pMipmappedArrayDesc, levels, 1, &storage);
    if (result == CUDA_SUCCESS)
        *pHandle = (CUmipmappedArray)storage;
    return result;
}

CUresult impl_cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray, unsigned int level)
{
    struct storage *storage = (struct storage *)hMipmappedArray;
    if (!handles_has(HANDLE_MIPMAP, storage))
        return CUDA_ERROR_INVALID_HANDLE;
    if (pLevelArray == NULL || level >= storage->level_count)
        return CUDA_ERROR_INVALID_VALUE;
    *pLevelArray = (CUarray)&storage->levels[level];
    return CUDA_SUCCESS;
}

CUresult impl_cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
    struct storage *storage = (struct storage *)hMipmappedArray;
    if (!handles_remove(HANDLE_MIPMAP, storage))
        return CUDA_ERROR_INVALID_HANDLE;
    storage_close(storage);
    return CUDA_SUCCESS;
}
