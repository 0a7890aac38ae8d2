/* Entry points of NVML that the shim replaces: memory is that of the kernel's quota. Devices, names, load and
 * processes are NVML's own. */
#include "nvml_driver.h"
#include "observer.h"

#include <ctype.h>
#include <stdint.h>

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

/* Reads "GPU-2b7e1516-28ae-…". False for anything else, such as a MIG device. */
static bool parse_uuid(const char *text, uint8_t uuid[16])
{
    if (text[0] != 'G' || text[1] != 'P' || text[2] != 'U' || text[3] != '-')
        return false;
    int digits = 0;
    for (const char *cursor = text + 4; *cursor; cursor++) {
        if (*cursor == '-')
            continue;
        if (!isxdigit((unsigned char)*cursor) || digits == 32)
            return false;
        int value = isdigit((unsigned char)*cursor) ? *cursor - '0' : tolower((unsigned char)*cursor) - 'a' + 10;
        uuid[digits / 2] = (uint8_t)(digits % 2 ? uuid[digits / 2] << 4 | value : value);
        digits++;
    }
    return digits == 32;
}

struct shares {
    unsigned long long total, used, free;
};

static bool find_shares(nvmlDevice_t device, unsigned long long real_total, struct shares *shares)
{
    char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    uint8_t uuid[16];
    struct observer_view view;
    if (nvml_driver()->nvmlDeviceGetUUID(device, text, sizeof text) != NVML_SUCCESS || !parse_uuid(text, uuid) ||
        !observer_view(uuid, &view))
        return false;
    shares->total = view.quota_bytes < real_total ? view.quota_bytes : real_total;
    shares->used = view.charged_bytes < shares->total ? view.charged_bytes : shares->total;
    shares->free = shares->total - shares->used;
    return true;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    struct shares shares;
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
    nvmlReturn_t result = nvml_driver()->nvmlDeviceGetMemoryInfo_v2(device, memory);
    if (result == NVML_SUCCESS && find_shares(device, memory->total, &shares)) {
        memory->total = shares.total;
        memory->reserved = 0; /* the device's own reserve is no part of the quota */
        memory->used = shares.used;
        memory->free = shares.free;
    }
    return result;
}
