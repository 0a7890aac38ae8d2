/* Entry points that map memory of another API. Its owner is charged, if any process is. The calls
 * are counted, so that an administrator sees that a kernel uses such memory. */
#include "charging/charge.h"

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *pointer, CUexternalMemory memory,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *descriptor)
{
    charge_unaccounted();
    return driver()->cuExternalMemoryGetMappedBuffer(pointer, memory, descriptor);
}

CUresult
cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *array, CUexternalMemory memory,
                                        const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *descriptor)
{
    charge_unaccounted();
    return driver()->cuExternalMemoryGetMappedMipmappedArray(array, memory, descriptor);
}
