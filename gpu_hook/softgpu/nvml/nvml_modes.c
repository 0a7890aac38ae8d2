/* The compute mode, which root may set, and constant answers: capability and other modes. Modes that
 * this GPU lacks (MIG, ECC, driver models) have no code here, and answer NOT_SUPPORTED as on a GPU
 * without them. */
#include <unistd.h>

#include "nvml/nvml_observer.h"

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    struct attachment *attachment;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &attachment, &index);
    if (result || major == NULL || minor == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    *major = MACHINE_CAPABILITY_MAJOR;
    *minor = MACHINE_CAPABILITY_MINOR;
    return NVML_SUCCESS;
}

static nvmlReturn_t constant(nvmlDevice_t device, unsigned *out, unsigned value)
{
    struct attachment *attachment;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &attachment, &index);
    if (result || out == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    *out = value;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode)
{
    struct attachment *attachment;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &attachment, &index);
    if (result || mode == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    *mode = (nvmlComputeMode_t)atomic_load(&attachment->machine->devices[index].compute_mode);
    return NVML_SUCCESS;
}

/* Contexts that live stay, as on a GPU: the mode is asked when a context is made. */
EXPORT nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode)
{
    struct attachment *attachment;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &attachment, &index);
    if (result)
        return result;
    if (mode == NVML_COMPUTEMODE_EXCLUSIVE_THREAD)
        return NVML_ERROR_NOT_SUPPORTED;
    if ((unsigned)mode >= NVML_COMPUTEMODE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (geteuid() != 0)
        return NVML_ERROR_NO_PERMISSION;
    atomic_store(&attachment->machine->devices[index].compute_mode, (uint32_t)mode);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t *pState)
{
    return constant(device, (unsigned *)pState, NVML_PSTATE_0);
}

EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
    return constant(device, (unsigned *)mode, NVML_FEATURE_ENABLED);
}

EXPORT nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t *isActive)
{
    return constant(device, (unsigned *)isActive, NVML_FEATURE_DISABLED);
}

EXPORT nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t *display)
{
    return constant(device, (unsigned *)display, NVML_FEATURE_DISABLED);
}

EXPORT nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *numCores)
{
    struct attachment *attachment;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &attachment, &index);
    return result ? result : constant(device, numCores, attachment->machine->sm_count);
}

EXPORT nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int *multiGpuBool)
{
    return constant(device, multiGpuBool, 0);
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *isMigDevice)
{
    return constant(device, isMigDevice, 0);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    return constant(device, count, 0);
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
    return constant(device, (unsigned *)mode, NVML_FEATURE_DISABLED);
}

EXPORT nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *type)
{
    return constant(device, (unsigned *)type, NVML_BRAND_UNKNOWN);
}
