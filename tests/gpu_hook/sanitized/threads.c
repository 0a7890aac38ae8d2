/* Threads that use one context in every way at once: linear, managed, pool and mapped memory, copies, launches, events,
 * graphs, page-locked memory, questions, and NVML in a thread of its own. For sanitizers: prints how much was done and
 * how often something failed that should not. */
#include <cuda.h>
#include <nvml.h>

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4
#define WORDS 1024
#define UNIT ((size_t)2 << 20)

static int rounds;
static unsigned done, refused, failed;
static int is_over;
static CUcontext context;
static CUmodule module;

static int expect(CUresult code, const char *call)
{
    if (code == CUDA_SUCCESS || code == CUDA_ERROR_OUT_OF_MEMORY) {
        __atomic_fetch_add(code ? &refused : &done, 1, __ATOMIC_RELAXED);
        return code == CUDA_SUCCESS;
    }
    fprintf(stderr, "%s: %d\n", call, code);
    __atomic_fetch_add(&failed, 1, __ATOMIC_RELAXED);
    return 0;
}
#define EXPECT(call) expect(call, #call)

static void fill(CUdeviceptr pointer, unsigned value, CUstream stream)
{
    CUfunction function;
    uint64_t words = WORDS;
    void *arguments[] = {&pointer, &value, &words};
    unsigned found[WORDS];
    if (!EXPECT(cuModuleGetFunction(&function, module, "aliquot_fill")) ||
        !EXPECT(cuLaunchKernel(function, 4, 1, 1, 64, 1, 1, 0, stream, arguments, NULL)) ||
        !EXPECT(cuMemcpyDtoHAsync(found, pointer, sizeof found, stream)) || !EXPECT(cuStreamSynchronize(stream)))
        return;
    if (found[0] != value || found[WORDS - 1] != value)
        __atomic_fetch_add(&failed, 1, __ATOMIC_RELAXED);
}

static void linear(CUstream stream, unsigned value)
{
    CUdeviceptr pointer;
    size_t pitch, free_bytes, total_bytes;
    CUresult code = value % 3 == 0   ? cuMemAlloc(&pointer, WORDS * 4 + value % 7 * 100000)
                    : value % 3 == 1 ? cuMemAllocPitch(&pointer, &pitch, 4096, 40, 4)
                                     : cuMemAllocManaged(&pointer, UNIT, CU_MEM_ATTACH_GLOBAL);
    if (!expect(code, "allocate"))
        return;
    fill(pointer, value, stream);
    EXPECT(cuMemGetInfo(&free_bytes, &total_bytes));
    EXPECT(cuMemFree(pointer));
}

static void ordered(CUstream stream, unsigned value)
{
    CUdeviceptr pointer;
    CUevent event;
    if (!EXPECT(cuMemAllocAsync(&pointer, 3 * UNIT + value % 5 * UNIT, stream)))
        return;
    fill(pointer, value, stream);
    if (EXPECT(cuEventCreate(&event, CU_EVENT_DEFAULT))) {
        EXPECT(cuEventRecord(event, stream));
        EXPECT(cuStreamWaitEvent(CU_STREAM_PER_THREAD, event, 0));
        EXPECT(cuEventSynchronize(event));
        EXPECT(cuEventDestroy(event));
    }
    EXPECT(cuMemFreeAsync(pointer, stream));
}

static void mapped(CUstream stream, unsigned value)
{
    CUmemAllocationProp wanted;
    CUmemAccessDesc access;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr pointer;
    memset(&wanted, 0, sizeof wanted);
    memset(&access, 0, sizeof access);
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    access.location.type = wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (!EXPECT(cuMemAddressReserve(&pointer, UNIT, 0, 0, 0)))
        return;
    if (EXPECT(cuMemCreate(&handle, UNIT, &wanted, 0))) {
        EXPECT(cuMemMap(pointer, UNIT, 0, handle, 0));
        EXPECT(cuMemRelease(handle));
        EXPECT(cuMemSetAccess(pointer, UNIT, &access, 1));
        fill(pointer, value, stream);
        EXPECT(cuMemUnmap(pointer, UNIT));
    }
    EXPECT(cuMemAddressFree(pointer, UNIT));
}

static void captured(CUstream stream, unsigned value)
{
    CUdeviceptr pointer;
    CUgraph graph;
    CUgraphExec exec;
    unsigned word = 0;
    if (!EXPECT(cuMemAlloc(&pointer, WORDS * 4)))
        return;
    if (EXPECT(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED))) {
        EXPECT(cuMemsetD32Async(pointer, value, WORDS, stream));
        EXPECT(cuStreamEndCapture(stream, &graph));
        if (EXPECT(cuGraphInstantiate(&exec, graph, 0))) {
            EXPECT(cuGraphLaunch(exec, stream));
            EXPECT(cuStreamSynchronize(stream));
            EXPECT(cuMemcpyDtoH(&word, pointer, sizeof word));
            EXPECT(cuGraphExecDestroy(exec));
            if (word != value)
                __atomic_fetch_add(&failed, 1, __ATOMIC_RELAXED);
        }
        EXPECT(cuGraphDestroy(graph));
    }
    EXPECT(cuMemFree(pointer));
}

static void others(CUstream stream, unsigned value)
{
    CUDA_ARRAY_DESCRIPTOR shape = {64, 64, CU_AD_FORMAT_FLOAT, 1};
    CUarray array;
    void *host;
    (void)stream;
    if (EXPECT(cuMemAllocHost(&host, 4096 * (1 + value % 4))))
        EXPECT(cuMemFreeHost(host));
    if (EXPECT(cuArrayCreate(&array, &shape)))
        EXPECT(cuArrayDestroy(array));
}

static void *work(void *seed_address)
{
    static void (*const ways[])(CUstream, unsigned) = {linear, ordered, mapped, captured, others};
    unsigned seed = *(unsigned *)seed_address;
    CUstream stream;
    if (!EXPECT(cuCtxSetCurrent(context)) || !EXPECT(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)))
        return NULL;
    for (int round = 0; round < rounds; round++) {
        unsigned value = (unsigned)rand_r(&seed);
        ways[rand_r(&seed) % 5](stream, value);
    }
    EXPECT(cuStreamDestroy(stream));
    return NULL;
}

static void *watch(void *unused)
{
    unsigned *looks = unused;
    nvmlDevice_t device;
    if (nvmlInit_v2() != NVML_SUCCESS || nvmlDeviceGetHandleByIndex_v2(0, &device) != NVML_SUCCESS)
        return NULL;
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
        nvmlMemory_t memory;
        nvmlUtilization_t load;
        nvmlProcessInfo_t processes[16];
        unsigned count = 16;
        *looks += nvmlDeviceGetMemoryInfo(device, &memory) == NVML_SUCCESS && memory.used <= memory.total;
        nvmlDeviceGetUtilizationRates(device, &load);
        nvmlDeviceGetComputeRunningProcesses_v3(device, &count, processes);
    }
    nvmlShutdown();
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t threads[THREADS], watcher;
    unsigned seeds[THREADS], looks = 0;
    rounds = count > 1 ? atoi(arguments[1]) : 100;
    if (!EXPECT(cuInit(0)) || !EXPECT(cuDevicePrimaryCtxRetain(&context, 0)) || !EXPECT(cuCtxSetCurrent(context)) ||
        !EXPECT(cuModuleLoad(&module, getenv("ALIQUOT_BUILTINS"))))
        return 1;
    pthread_create(&watcher, NULL, watch, &looks);
    for (unsigned i = 0; i < THREADS; i++) {
        seeds[i] = i + 1;
        pthread_create(&threads[i], NULL, work, &seeds[i]);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    pthread_join(watcher, NULL);
    EXPECT(cuModuleUnload(module));
    EXPECT(cuDevicePrimaryCtxRelease(0));
    printf("%u %u %u\n", done, refused, looks);
    return failed ? 1 : 0;
}
