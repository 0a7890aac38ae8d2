/* NVML for the null driver, in the same library: one idle device of the same UUID, and in it
 * this process once it holds the primary context. Peers query it to find their own process; our
 * hook queries nothing. */
#include "null_driver.h"

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#pragma GCC visibility push(default)
#include <nvml.h>
#pragma GCC visibility pop

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CONTEXT_BYTES (300ull << 20)

nvmlReturn_t nvmlInit(void)
{
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit_v2(void)
{
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlShutdown(void)
{
    return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
    return result == NVML_SUCCESS ? "success" : "an error of the null driver";
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    *count = 1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    *device = (nvmlDevice_t)null_uuid;
    return index == 0 ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    char text[NVML_DEVICE_UUID_BUFFER_SIZE] = "GPU-";
    char *end = text + 4;
    for (unsigned i = 0; i < sizeof null_uuid; i++)
        end += sprintf(end, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", null_uuid[i]);
    snprintf(uuid, length, "%s", text);
    return NVML_SUCCESS;
}

/* The first version's record is the pid and the bytes; later ones have two words more. */
static nvmlReturn_t list_processes(unsigned int *count, void *records, size_t record_bytes)
{
    unsigned int room = *count;
    *count = null_contexts > 0;
    if (room < *count)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    if (*count) {
        nvmlProcessInfo_v1_t record = {.pid = (unsigned)getpid(), .usedGpuMemory = CONTEXT_BYTES};
        memset(records, 0xff, record_bytes);
        memcpy(records, &record, sizeof record);
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                  nvmlProcessInfo_v1_t *records)
{
    return list_processes(count, records, sizeof *records);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_t *records)
{
    return list_processes(count, records, sizeof *records);
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                             unsigned int *count, unsigned long long since)
{
    *count = 0;
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    *utilization = (nvmlUtilization_t){0, 0};
    return NVML_SUCCESS;
}
