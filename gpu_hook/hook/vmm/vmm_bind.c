/* Entry points that bind memory to objects that several devices share: bound memory stays on its
 * device. The objects themselves are the driver's own. */
#include "vmm/vmm.h"

#include "aliquot_protocol.h"

#define BIND_MEMORY(call)                                              \
    struct handle *handle = NULL;                                      \
    bool acts;                                                         \
    if (!vmm_begin(&acts))                                             \
        return CUDA_ERROR_OUT_OF_MEMORY;                               \
    CUmemGenericAllocationHandle real = acts ? vmm_real(name, &handle) : name; \
    CUresult result = driver()->call;                                  \
    if (handle && result == CUDA_SUCCESS)                              \
        handles_hold(handle, ALIQUOT_PIN_MULTICAST);                 \
    return vmm_end(acts, result);

#define BIND_ADDRESS(call)                                             \
    bool acts;                                                         \
    if (!vmm_begin(&acts))                                             \
        return CUDA_ERROR_OUT_OF_MEMORY;                               \
    CUresult result = driver()->call;                                  \
    if (acts && result == CUDA_SUCCESS)                                \
        vmm_hold_range((CUdeviceptr)pointer, bytes, ALIQUOT_PIN_MULTICAST);           \
    return vmm_end(acts, result);

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t at,
                            CUmemGenericAllocationHandle name, size_t offset, size_t bytes,
                            unsigned long long flags){
    BIND_MEMORY(cuMulticastBindMem(object, at, real, offset, bytes, flags))}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t at, CUdeviceptr pointer,
                             size_t bytes, unsigned long long flags){
    BIND_ADDRESS(cuMulticastBindAddr(object, at, pointer, bytes, flags))}

CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t at,
                               CUmemGenericAllocationHandle name, size_t offset, size_t bytes,
                               unsigned long long flags){
    BIND_MEMORY(cuMulticastBindMem_v2(object, device, at, real, offset, bytes, flags))}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t at,
                                CUdeviceptr pointer, size_t bytes, unsigned long long flags){
    BIND_ADDRESS(cuMulticastBindAddr_v2(object, device, at, pointer, bytes, flags))}

CUresult cuLogicalEndpointBindMem(CUlogicalEndpointId endpoint, CUdevice device, cuuint64_t at,
                                  CUmemGenericAllocationHandle name, cuuint64_t offset,
                                  cuuint64_t bytes, unsigned long long flags){
    BIND_MEMORY(cuLogicalEndpointBindMem(endpoint, device, at, real, offset, bytes, flags))}

CUresult cuLogicalEndpointBindAddr(CUlogicalEndpointId endpoint, CUdevice device, cuuint64_t at,
                                   void *pointer, cuuint64_t bytes, unsigned long long flags)
{
    BIND_ADDRESS(cuLogicalEndpointBindAddr(endpoint, device, at, pointer, bytes, flags))
}
