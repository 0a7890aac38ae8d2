/* How busy the device is, by the kernel's own processes. */
#include "nvml/nvml_view.h"

#include <stdlib.h>

#define SLACK 32
#define LOOKS 4

/* NVML reports memory traffic for the device alone; the kernel's share of it is its share of the
 * work. */
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    struct observer_view view;
    device = nvml_present(device);
    nvmlReturn_t result = nvml_driver()->nvmlDeviceGetUtilizationRates(device, utilization);
    if (result != NVML_SUCCESS || !nvml_view(device, &view))
        return result;
    unsigned all = utilization->gpu,
             own = view.utilization_percent < 100 ? view.utilization_percent : 100;
    utilization->memory = all > own ? utilization->memory * own / all
                          : own     ? utilization->memory
                                    : 0;
    utilization->gpu = own;
    return result;
}

/* Keep the kernel's samples, under its processes' own pids; returns how many. */
static unsigned keep_own(nvmlProcessUtilizationSample_t *samples, unsigned count)
{
    struct aliquot_agent_process known[ALIQUOT_MAX_PROCESSES];
    unsigned known_count = observer_processes(known), kept = 0;
    for (unsigned i = 0; i < count; i++)
        for (unsigned k = 0; k < known_count; k++)
            if ((unsigned int)known[k].pid == samples[i].pid) {
                samples[kept] = samples[i];
                samples[kept++].pid = (unsigned int)known[k].own_pid;
                break; /* a process is listed once for each of its devices */
            }
    return kept;
}

/* Allocates *samples; the caller frees them. */
static nvmlReturn_t sample_own(nvmlDevice_t device, unsigned long long last_seen,
                               nvmlProcessUtilizationSample_t **samples, unsigned *count)
{
    unsigned int room = 0;
    nvmlReturn_t result =
        nvml_driver()->nvmlDeviceGetProcessUtilization(device, NULL, &room, last_seen);
    *samples = NULL;
    for (int look = 0; look < LOOKS && result == NVML_ERROR_INSUFFICIENT_SIZE; look++) {
        room += SLACK;
        free(*samples);
        *samples = calloc(room, sizeof **samples);
        if (*samples == NULL)
            return NVML_ERROR_MEMORY;
        result = nvml_driver()->nvmlDeviceGetProcessUtilization(device, *samples, &room, last_seen);
    }
    *count = result == NVML_SUCCESS && *samples ? keep_own(*samples, room) : 0;
    return result == NVML_SUCCESS && *count == 0 ? NVML_ERROR_NOT_FOUND : result;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *utilization,
                                             unsigned int *processSamplesCount,
                                             unsigned long long lastSeenTimeStamp)
{
    struct observer_view view;
    device = nvml_present(device);
    if (!processSamplesCount || !nvml_view(device, &view))
        return nvml_driver()->nvmlDeviceGetProcessUtilization(
            device, utilization, processSamplesCount, lastSeenTimeStamp);
    nvmlProcessUtilizationSample_t *samples;
    unsigned count = 0, room = utilization ? *processSamplesCount : 0;
    nvmlReturn_t result = sample_own(device, lastSeenTimeStamp, &samples, &count);
    *processSamplesCount = count;
    if (result == NVML_SUCCESS && count > room)
        result = NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; result == NVML_SUCCESS && i < count; i++)
        utilization[i] = samples[i];
    free(samples);
    return result;
}

/* A version that the hook does not know is refused: passed on, it would show the processes of other
 * kernels. */
nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_t *procesesUtilInfo)
{
    nvmlProcessesUtilizationInfo_t *asked = procesesUtilInfo;
    struct observer_view view;
    device = nvml_present(device);
    if (!asked || !nvml_view(device, &view))
        return nvml_driver()->nvmlDeviceGetProcessesUtilizationInfo(device, procesesUtilInfo);
    if (asked->version != nvmlProcessesUtilizationInfo_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlProcessUtilizationSample_t *samples;
    unsigned count = 0, room = asked->procUtilArray ? asked->processSamplesCount : 0;
    nvmlReturn_t result = sample_own(device, asked->lastSeenTimeStamp, &samples, &count);
    asked->processSamplesCount = count;
    if (result == NVML_SUCCESS && count > room)
        result = NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; result == NVML_SUCCESS && i < count; i++)
        asked->procUtilArray[i] =
            (nvmlProcessUtilizationInfo_v1_t){.timeStamp = samples[i].timeStamp,
                                              .pid = samples[i].pid,
                                              .smUtil = samples[i].smUtil,
                                              .memUtil = samples[i].memUtil,
                                              .encUtil = samples[i].encUtil,
                                              .decUtil = samples[i].decUtil};
    free(samples);
    return result;
}
