/* NVML of a machine that a test describes: FAKE_DRIVER, FAKE_MIG, FAKE_USED_GIB of 80 GiB, FAKE_INIT. */
#include <stdio.h>
#include <stdlib.h>

static unsigned long long number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : 0;
}

int nvmlInit_v2(void)
{
    return (int)number("FAKE_INIT");
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 1;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    static int handle;
    *device = &handle;
    return index ? 2 : 0;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory)
{
    (void)device;
    memory[0] = 80ull << 30;
    memory[2] = number("FAKE_USED_GIB") << 30;
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
    (void)device;
    *now = *pending = (unsigned)number("FAKE_MIG");
    return getenv("FAKE_MIG") ? 0 : 3;
}

struct process {
    unsigned pid;
    unsigned long long used;
    unsigned instances[2];
};

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *found)
{
    (void)device;
    *count = number("FAKE_USED_GIB") > 0;
    found[0] = (struct process){.pid = 4321, .used = number("FAKE_USED_GIB") << 30};
    return 0;
}
