/* NVML's start, and its memory figures: those of the kernel's quota. Devices, names and health
 * are NVML's own. */
#include "nvml/nvml_view.h"
#include "base/settings.h"

nvmlReturn_t nvmlInit(void)
{
    nvmlReturn_t result = nvml_driver()->nvmlInit();
    if (result == NVML_SUCCESS)
        observer_begin();
    return result;
}

nvmlReturn_t nvmlInit_v2(void)
{
    nvmlReturn_t result = nvml_driver()->nvmlInit_v2();
    if (result == NVML_SUCCESS)
        observer_begin();
    return result;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    nvmlReturn_t result = nvml_driver()->nvmlInitWithFlags(flags);
    if (result == NVML_SUCCESS)
        observer_begin();
    return result;
}

/* The one function that returns no code. */
const char *nvmlErrorString(nvmlReturn_t result)
{
    if (!nvml_driver_is_there())
        return "the real NVML library was not found (ALIQUOT_REAL_NVML)";
    return nvml_driver()->nvmlErrorString(result);
}

/* By the name of the device where the kernel began, programs find the one where it is: so CUDA names
 * it. By an index, they find what NVML lists. */
static nvmlReturn_t found(nvmlReturn_t result, nvmlDevice_t *device)
{
    if (result == NVML_SUCCESS)
        *device = nvml_present(*device);
    return result;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    return found(nvml_driver()->nvmlDeviceGetHandleByUUID(uuid, device), device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device)
{
    return found(nvml_driver()->nvmlDeviceGetHandleByUUIDV(uuid, device), device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pciBusId, nvmlDevice_t *device)
{
    return found(nvml_driver()->nvmlDeviceGetHandleByPciBusId(pciBusId, device), device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pciBusId, nvmlDevice_t *device)
{
    return found(nvml_driver()->nvmlDeviceGetHandleByPciBusId_v2(pciBusId, device), device);
}

struct shares {
    unsigned long long total, used, free;
};

/* A device that was not granted is shown full: programs would divide by a total of 0, and the
 * kernel can have none of it. Where the driver itself holds the limit, its answer is true
 * already. */
static bool find_shares(nvmlDevice_t device, unsigned long long real_total, struct shares *shares)
{
    struct observer_view view;
    if (!nvml_view(device, &view) || (view.is_granted && view.enforcer == ALIQUOT_ENFORCER_DRIVER))
        return false;
    shares->total =
        view.is_granted && view.quota_bytes < real_total ? view.quota_bytes : real_total;
    shares->used =
        view.is_granted && view.charged_bytes < shares->total ? view.charged_bytes : shares->total;
    shares->free = shares->total - shares->used;
    return true;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    struct shares shares;
    device = nvml_present(device);
    nvmlReturn_t result = nvml_driver()->nvmlDeviceGetMemoryInfo(device, memory);
    if (result == NVML_SUCCESS && find_shares(device, memory->total, &shares)) {
        memory->total = shares.total;
        memory->used = shares.used;
        memory->free = shares.free;
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    struct shares shares;
    device = nvml_present(device);
    nvmlReturn_t result = nvml_driver()->nvmlDeviceGetMemoryInfo_v2(device, memory);
    if (result == NVML_SUCCESS && find_shares(device, memory->total, &shares)) {
        memory->total = shares.total;
        memory->reserved = 0; /* the device's own reserve is no part of the quota */
        memory->used = shares.used;
        memory->free = shares.free;
    }
    return result;
}

/* Root in a container may set limits; a kernel does not set its own. */
nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits)
{
    if (settings()->is_on)
        return NVML_ERROR_NO_PERMISSION;
    return nvml_driver()->nvmlDeviceSetMemoryLimits_v1(device, limits);
}
