/* Asks NVML from several threads, through the shim's code that is linked in here, while the agent's page changes. Prints how
 * many lists came whole; says what was wrong, and ends with 1, if one named a process that cannot be. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 4
#define ROOM 64

static struct {
    int rounds;
    unsigned whole, wrong;
} shared;

/* The test writes tables in which all entries carry one number, as pid and as bytes. */
static void read_lists(nvmlDevice_t device)
{
    nvmlProcessInfo_t infos[ROOM];
    unsigned count = ROOM, small = 1;
    if (nvmlDeviceGetComputeRunningProcesses_v3(device, &count, infos) != NVML_SUCCESS)
        return;
    for (unsigned i = 0; i < count; i++)
        if (infos[i].pid != infos[0].pid || infos[i].usedGpuMemory != infos[0].pid)
            __atomic_fetch_add(&shared.wrong, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&shared.whole, count != 0, __ATOMIC_RELAXED);
    nvmlDeviceGetComputeRunningProcesses(device, &small, (nvmlProcessInfo_v1_t *)infos);
    count = ROOM;
    nvmlDeviceGetMPSComputeRunningProcesses_v2(device, &count, (nvmlProcessInfo_v2_t *)infos);
    nvmlProcessDetail_v1_t details[ROOM];
    nvmlProcessDetailList_t list = {
        .version = nvmlProcessDetailList_v1, .numProcArrayEntries = ROOM, .procArray = details};
    nvmlDeviceGetRunningProcessDetailList(device, &list);
}

static void read_load(nvmlDevice_t device)
{
    nvmlUtilization_t load;
    nvmlMemory_t memory;
    nvmlMemory_v2_t second = {.version = nvmlMemory_v2};
    nvmlProcessUtilizationSample_t samples[ROOM];
    nvmlProcessUtilizationInfo_v1_t infos[ROOM];
    unsigned count = ROOM;
    nvmlProcessesUtilizationInfo_t asked = {
        .version = nvmlProcessesUtilizationInfo_v1, .processSamplesCount = ROOM, .procUtilArray = infos};
    nvmlDeviceGetUtilizationRates(device, &load);
    nvmlDeviceGetMemoryInfo(device, &memory);
    nvmlDeviceGetMemoryInfo_v2(device, &second);
    nvmlDeviceGetProcessUtilization(device, samples, &count, 0);
    nvmlDeviceGetProcessesUtilizationInfo(device, &asked);
}

static void *run(void *unused)
{
    nvmlDevice_t device;
    if (nvmlInit_v2() != NVML_SUCCESS || nvmlDeviceGetHandleByIndex_v2(0, &device) != NVML_SUCCESS)
        exit(2);
    for (int i = 0; i < shared.rounds; i++) {
        read_lists(device);
        read_load(device);
    }
    return unused;
}

int main(int count, char **arguments)
{
    pthread_t threads[THREADS];
    nvmlInit_v2();
    printf("ready\n");
    fflush(stdout);
    getchar();
    shared.rounds = count > 1 ? atoi(arguments[1]) : 1;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, run, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("%u %u\n", shared.whole, shared.wrong);
    return shared.wrong != 0;
}
