/* The links between devices: those of one domain reach each other over NVLink, others over the
 * processors of the machine. */
#include "nvml/nvml_observer.h"

/* SUCCESS with whether both are in one domain, or as observer_device answers. */
static nvmlReturn_t are_linked(nvmlDevice_t one, nvmlDevice_t other, int *is_linked)
{
    struct attachment *attachment;
    unsigned first, second;
    nvmlReturn_t result = observer_device(one, &attachment, &first);
    if (result == NVML_SUCCESS)
        result = observer_device(other, &attachment, &second);
    if (result != NVML_SUCCESS)
        return result;
    unsigned size = attachment->machine->domain_devices;
    *is_linked = size == 0 || first / size == second / size;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1, nvmlDevice_t device2,
                                                        nvmlGpuTopologyLevel_t *pathInfo)
{
    int is_linked;
    nvmlReturn_t result = are_linked(device1, device2, &is_linked);
    if (result || pathInfo == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    *pathInfo = is_linked ? NVML_TOPOLOGY_SINGLE : NVML_TOPOLOGY_SYSTEM;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2, nvmlGpuP2PCapsIndex_t p2pIndex,
                                           nvmlGpuP2PStatus_t *p2pStatus)
{
    int is_linked;
    nvmlReturn_t result = are_linked(device1, device2, &is_linked);
    if (result || p2pStatus == NULL || p2pIndex >= NVML_P2P_CAPS_INDEX_UNKNOWN)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    *p2pStatus = is_linked || p2pIndex != NVML_P2P_CAPS_INDEX_NVLINK ? NVML_P2P_STATUS_OK
                                                                     : NVML_P2P_STATUS_NOT_SUPPORTED;
    return NVML_SUCCESS;
}
