/* NVML's life: init, shutdown, handles, and the system's versions. */
#include "nvml/nvml_observer.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "device/log.h"
#include "nvml/nvml_missing.h"
#include "device/pids.h"

static struct {
    pthread_mutex_t mutex; /* guards the count and the opening */
    unsigned users;
    struct attachment attachment;
    char handles[MACHINE_DEVICES]; /* their addresses are the handles */
} observer = {.mutex = PTHREAD_MUTEX_INITIALIZER, .attachment = {.descriptor = -1, .slot = -1}};

nvmlReturn_t observer_attachment(struct attachment **attachment)
{
    *attachment = &observer.attachment;
    return __atomic_load_n(&observer.users, __ATOMIC_ACQUIRE) ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

int nvml_missing(const char *name)
{
    log_line("event=unsupported function=%s", name);
    return __atomic_load_n(&observer.users, __ATOMIC_ACQUIRE) ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_UNINITIALIZED;
}

nvmlDevice_t observer_handle(unsigned index)
{
    return (nvmlDevice_t)&observer.handles[index];
}

nvmlReturn_t observer_device(nvmlDevice_t handle, struct attachment **attachment, unsigned *index)
{
    nvmlReturn_t result = observer_attachment(attachment);
    if (result != NVML_SUCCESS)
        return result;
    const char *at = (const char *)handle;
    if (at < observer.handles || at >= observer.handles + (*attachment)->machine->device_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *index = (unsigned)(at - observer.handles);
    return atomic_load(&(*attachment)->machine->devices[*index].is_lost) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

nvmlReturn_t observer_text(char *buffer, unsigned length, const char *text)
{
    if (buffer == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return NVML_SUCCESS;
}

static nvmlReturn_t translate(enum machine_failure failure)
{
    switch (failure) {
    case MACHINE_OK:
        return NVML_SUCCESS;
    case MACHINE_OTHER_VERSION:
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    case MACHINE_NO_SPACE:
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    case MACHINE_NO_ACCESS:
        return NVML_ERROR_NO_PERMISSION;
    case MACHINE_STUCK:
        return NVML_ERROR_TIMEOUT;
    case MACHINE_BAD_SETTINGS:
    case MACHINE_NO_SLOT:
        break;
    }
    return NVML_ERROR_DRIVER_NOT_LOADED;
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    struct settings settings;
    char problem[256];
    nvmlReturn_t result = NVML_SUCCESS;
    pthread_mutex_lock(&observer.mutex);
    if (observer.users == 0) {
        if (settings_read(&settings, problem, sizeof problem) != 0) {
            log_failure("%s", problem);
            result = translate(MACHINE_BAD_SETTINGS);
        } else {
            log_open(settings.log);
            result = translate(machine_open(&observer.attachment, &settings));
        }
    }
    if (result == NVML_SUCCESS)
        __atomic_add_fetch(&observer.users, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&observer.mutex);
    return result;
}

EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

EXPORT nvmlReturn_t nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}


EXPORT nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;
    pthread_mutex_lock(&observer.mutex);
    if (observer.users) {
        result = NVML_SUCCESS;
        if (__atomic_sub_fetch(&observer.users, 1, __ATOMIC_RELEASE) == 0)
            machine_close(&observer.attachment);
    }
    pthread_mutex_unlock(&observer.mutex);
    return result;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_ERROR_UNINITIALIZED:
        return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_ERROR_NO_PERMISSION:
        return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND:
        return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT:
        return "Timeout";
    case NVML_ERROR_GPU_IS_LOST:
        return "GPU is lost";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return "Driver/library version mismatch";
    case NVML_ERROR_FUNCTION_NOT_FOUND:
        return "Function Not Found";
    case NVML_ERROR_OPERATING_SYSTEM:
        return "Operating System Error";
    case NVML_ERROR_INSUFFICIENT_RESOURCES:
        return "Insufficient Resources";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
        return "Argument version mismatch";
    default:
        return "Unknown Error";
    }
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    struct attachment *attachment;
    nvmlReturn_t result = observer_attachment(&attachment);
    return result ? result : observer_text(version, length, MACHINE_DRIVER);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    return observer_text(version, length, MACHINE_DRIVER);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *cudaDriverVersion)
{
    if (cudaDriverVersion == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *cudaDriverVersion = MACHINE_CUDA_VERSION;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *cudaDriverVersion)
{
    return nvmlSystemGetCudaDriverVersion_v2(cudaDriverVersion);
}

/* The program's name, of a process that is on the machine; the host's /proc for others. */
EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    struct attachment *attachment;
    nvmlReturn_t result = observer_attachment(&attachment);
    if (result)
        return result;
    for (int i = 0; i < MACHINE_SLOTS; i++)
        if (pid && (unsigned)pids_of_slot(attachment->machine, i) == pid)
            return observer_text(name, length, attachment->machine->slots[i].name);
    return NVML_ERROR_NOT_FOUND;
}
