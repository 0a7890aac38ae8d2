/* Which devices there are, and what identifies them. NVML shows all of them; CUDA_VISIBLE_DEVICES is CUDA's. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "nvml_observer.h"
#include "visible.h"

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *deviceCount)
{
    struct seat *seat;
    nvmlReturn_t result = observer_seat(&seat);
    if (result || deviceCount == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    *deviceCount = seat->machine->device_count;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int *deviceCount)
{
    return nvmlDeviceGetCount_v2(deviceCount);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    struct seat *seat;
    nvmlReturn_t result = observer_seat(&seat);
    if (result)
        return result;
    if (device == NULL || index >= seat->machine->device_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = observer_handle(index);
    return atomic_load(&seat->machine->devices[index].is_lost) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    struct seat *seat;
    char text[41];
    nvmlReturn_t result = observer_seat(&seat);
    if (result || uuid == NULL || device == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < seat->machine->device_count; i++) {
        visible_format_uuid(seat->machine->devices[i].uuid, text);
        if (strcasecmp(text, uuid) == 0)
            return nvmlDeviceGetHandleByIndex_v2(i, device);
    }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pciBusId, nvmlDevice_t *device)
{
    struct seat *seat;
    unsigned domain, bus, slot;
    nvmlReturn_t result = observer_seat(&seat);
    if (result || pciBusId == NULL || device == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    if (sscanf(pciBusId, "%x:%x:%x", &domain, &bus, &slot) != 3)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (domain != MACHINE_PCI_DOMAIN || slot != 0 || bus >= seat->machine->device_count)
        return NVML_ERROR_NOT_FOUND;
    return nvmlDeviceGetHandleByIndex_v2(bus, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pciBusId, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(pciBusId, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    struct seat *seat;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &seat, &index);
    return result ? result : observer_text(name, length, MACHINE_NAME);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    struct seat *seat;
    unsigned index;
    char text[41];
    nvmlReturn_t result = observer_device(device, &seat, &index);
    if (result)
        return result;
    visible_format_uuid(seat->machine->devices[index].uuid, text);
    return observer_text(uuid, length, text);
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    struct seat *seat;
    return index ? observer_device(device, &seat, index) : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minorNumber)
{
    return nvmlDeviceGetIndex(device, minorNumber);
}

/* The vendor and device ids are zero: no such part exists on any bus. */
EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    struct seat *seat;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &seat, &index);
    if (result || pci == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    memset(pci, 0, sizeof *pci);
    pci->domain = MACHINE_PCI_DOMAIN;
    pci->bus = index;
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:00.0", MACHINE_PCI_DOMAIN, index);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:00.0", MACHINE_PCI_DOMAIN, index);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    struct seat *seat;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &seat, &index);
    if (result || major == NULL || minor == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    *major = MACHINE_CAPABILITY_MAJOR;
    *minor = MACHINE_CAPABILITY_MINOR;
    return NVML_SUCCESS;
}

/* For what is a number that never changes: the modes. */
static nvmlReturn_t constant(nvmlDevice_t device, unsigned *out, unsigned value)
{
    struct seat *seat;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &seat, &index);
    if (result || out == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    *out = value;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode)
{
    return constant(device, (unsigned *)mode, NVML_COMPUTEMODE_DEFAULT);
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
    struct seat *seat;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &seat, &index);
    return result ? result : constant(device, numCores, seat->machine->sm_count);
}

EXPORT nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int *multiGpuBool)
{
    return constant(device, multiGpuBool, 0);
}
