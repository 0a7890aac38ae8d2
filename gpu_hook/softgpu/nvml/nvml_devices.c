/* The devices and what identifies them. NVML shows all of them, whatever CUDA_VISIBLE_DEVICES
 * says. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "nvml/nvml_observer.h"
#include "device/visible.h"

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *deviceCount)
{
    struct attachment *attachment;
    nvmlReturn_t result = observer_attachment(&attachment);
    if (result || deviceCount == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    *deviceCount = attachment->machine->device_count;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int *deviceCount)
{
    return nvmlDeviceGetCount_v2(deviceCount);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    struct attachment *attachment;
    nvmlReturn_t result = observer_attachment(&attachment);
    if (result)
        return result;
    if (device == NULL || index >= attachment->machine->device_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = observer_handle(index);
    return atomic_load(&attachment->machine->devices[index].is_lost) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    struct attachment *attachment;
    char text[41];
    nvmlReturn_t result = observer_attachment(&attachment);
    if (result || uuid == NULL || device == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < attachment->machine->device_count; i++) {
        visible_format_uuid(attachment->machine->devices[i].uuid, text);
        if (strcasecmp(text, uuid) == 0)
            return nvmlDeviceGetHandleByIndex_v2(i, device);
    }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device)
{
    struct attachment *attachment;
    char text[41];
    nvmlReturn_t result = observer_attachment(&attachment);
    if (result || uuid == NULL || device == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    if (uuid->version != nvmlUUID_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (uuid->type == NVML_UUID_TYPE_BINARY)
        visible_format_uuid(uuid->value.bytes, text);
    else if (uuid->type == NVML_UUID_TYPE_ASCII)
        snprintf(text, sizeof text, "%.40s", uuid->value.str);
    else
        return NVML_ERROR_INVALID_ARGUMENT;
    return nvmlDeviceGetHandleByUUID(text, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pciBusId, nvmlDevice_t *device)
{
    struct attachment *attachment;
    unsigned domain, bus, slot;
    nvmlReturn_t result = observer_attachment(&attachment);
    if (result || pciBusId == NULL || device == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    if (sscanf(pciBusId, "%x:%x:%x", &domain, &bus, &slot) != 3)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (domain != MACHINE_PCI_DOMAIN || slot != 0 || bus >= attachment->machine->device_count)
        return NVML_ERROR_NOT_FOUND;
    return nvmlDeviceGetHandleByIndex_v2(bus, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pciBusId, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(pciBusId, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    struct attachment *attachment;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &attachment, &index);
    return result ? result : observer_text(name, length, MACHINE_NAME);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    struct attachment *attachment;
    unsigned index;
    char text[41];
    nvmlReturn_t result = observer_device(device, &attachment, &index);
    if (result)
        return result;
    visible_format_uuid(attachment->machine->devices[index].uuid, text);
    return observer_text(uuid, length, text);
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    struct attachment *attachment;
    return index ? observer_device(device, &attachment, index) : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minorNumber)
{
    return nvmlDeviceGetIndex(device, minorNumber);
}

/* The vendor and device ids are zero: no such part exists on any bus. */
EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    struct attachment *attachment;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &attachment, &index);
    if (result || pci == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    memset(pci, 0, sizeof *pci);
    pci->domain = MACHINE_PCI_DOMAIN;
    pci->bus = index;
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:00.0", MACHINE_PCI_DOMAIN, index);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:00.0", MACHINE_PCI_DOMAIN, index);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return nvmlDeviceGetPciInfo_v3(device, pci);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *pci)
{
    nvmlPciInfo_t plain;
    if (pci == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (pci->version != nvmlPciInfoExt_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(device, &plain);
    if (result)
        return result;
    *pci = (nvmlPciInfoExt_t){.version = nvmlPciInfoExt_v1, .domain = plain.domain, .bus = plain.bus};
    memcpy(pci->busId, plain.busId, sizeof pci->busId);
    return NVML_SUCCESS;
}
