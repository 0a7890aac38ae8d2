/* The memory limits of release 615: bytes of a cgroup on a device, set by root. */
#include <errno.h>
#include <stdbool.h>
#include <unistd.h>

#include "device/limits.h"
#include "nvml/nvml_observer.h"

/* After nvml.h. */
#include "nvml_memory_limits.h"

_Static_assert(NVML_DEVICE_MEMORY_LIMIT_MAX == MACHINE_NO_LIMIT, "no limit");

static nvmlReturn_t translate(int failure)
{
    switch (failure) {
    case 0:
        return NVML_SUCCESS;
    case ENAMETOOLONG:
        return NVML_ERROR_INVALID_ARGUMENT;
    case ENOSPC:
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    case ETIMEDOUT:
        return NVML_ERROR_TIMEOUT;
    default:
        return NVML_ERROR_OPERATING_SYSTEM; /* the cgroup's path cannot be opened */
    }
}

EXPORT nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits)
{
    struct attachment *attachment;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &attachment, &index);
    if (result)
        return result;
    if (limits == NULL || limits->nameSpace == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    uint64_t most = attachment->machine->memory_bytes;
    bool has_limit = limits->hardLimit != NVML_DEVICE_MEMORY_LIMIT_MAX;
    if (limits->softLimit > limits->hardLimit || limits->softLimit > most || (has_limit && limits->hardLimit > most))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (geteuid() != 0)
        return NVML_ERROR_NO_PERMISSION;
    return translate(limits_set(attachment, index, limits->nameSpace, limits->softLimit, limits->hardLimit));
}

/* A cgroup without limits answers with none, and with its use. */
EXPORT nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
    struct attachment *attachment;
    struct limits_reading reading;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &attachment, &index);
    if (result)
        return result;
    if (limits == NULL || limits->nameSpace == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    result = translate(limits_get(attachment, index, limits->nameSpace, &reading));
    if (result)
        return result;
    limits->softLimit = reading.soft;
    limits->hardLimit = reading.hard;
    limits->currentUsed = reading.used;
    return NVML_SUCCESS;
}
