/* NVML of a machine that a test describes: FAKE_DRIVER, FAKE_INIT, FAKE_DEVICES; FAKE_MIG and FAKE_USED_GIB of 80 GiB
 * have a number for each device, with commas between. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned long long number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : 0;
}

/* Of one device: the last number counts for those after it, too. */
static unsigned long long number_of(const char *name, const void *device)
{
    const char *text = getenv(name), *next;
    size_t index = (size_t)((const char *)device - (const char *)0) - 1;
    while (text && index-- && (next = strchr(text, ',')))
        text = next + 1;
    return text ? strtoull(text, NULL, 10) : 0;
}

int nvmlInit_v2(void)
{
    return (int)number("FAKE_INIT");
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = getenv("FAKE_DEVICES") ? (unsigned)number("FAKE_DEVICES") : 1;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    unsigned count;
    nvmlDeviceGetCount_v2(&count);
    *device = (char *)0 + index + 1;
    return index < count ? 0 : 2;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory)
{
    memory[0] = 80ull << 30;
    memory[2] = number_of("FAKE_USED_GIB", device) << 30;
    memory[1] = memory[0] - memory[2];
    return 0;
}

int nvmlDeviceGetName(void *device, char *name, unsigned length)
{
    (void)device;
    return snprintf(name, length, "Fake GPU") < 0;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    const char *text = getenv("FAKE_DRIVER");
    return snprintf(version, length, "%s", text ? text : "580.95.05") < 0;
}

int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending)
{
    *now = *pending = (unsigned)number_of("FAKE_MIG", device);
    return getenv("FAKE_MIG") ? 0 : 3;
}

struct process {
    unsigned pid;
    unsigned long long used;
    unsigned instances[2];
};

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *found)
{
    *count = number_of("FAKE_USED_GIB", device) > 0;
    found[0] = (struct process){.pid = 4321, .used = number_of("FAKE_USED_GIB", device) << 30};
    return 0;
}
