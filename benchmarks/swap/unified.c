/* One kernel of TGS's experiment: it holds blocks of memory, and uses all of them in each step. A
 * question is `NAME COUNT`; answers are nanoseconds, or as stated. */
#include <pthread.h>

#include "../hook/measure.h"

#define MIB ((size_t)1 << 20)
#define BLOCKS_MAX 4096

static struct {
    CUdeviceptr blocks[BLOCKS_MAX];
    unsigned long count;
    size_t block_bytes;
    CUfunction fill, spin;
    CUcontext context;
    CUevent first, last;
    pthread_t worker;
    int is_stopped;
    unsigned long steps;
    uint64_t spin_nanoseconds, pause_nanoseconds;
} held;

static double hold(unsigned long mib, int is_managed)
{
    unsigned long wanted = mib * MIB / held.block_bytes;
    while (held.count < wanted && held.count < BLOCKS_MAX) {
        CUdeviceptr *block = &held.blocks[held.count];
        CUresult result = is_managed ? cuMemAllocManaged(block, held.block_bytes, CU_MEM_ATTACH_GLOBAL)
                                     : cuMemAlloc(block, held.block_bytes);
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            break;
        MUST(result);
        MUST(cuMemsetD32(*block, 1, held.block_bytes / 4));
        held.count++;
    }
    MUST(cuCtxSynchronize());
    return (double)held.count * (double)held.block_bytes;
}

/* Answer the bytes that it got. */
static double hold_plain(unsigned long mib)
{
    return hold(mib, 0);
}

static double hold_managed(unsigned long mib)
{
    return hold(mib, 1);
}

/* Answers the time on the device, which a busy host does not lengthen. */
static double work(void)
{
    float milliseconds;
    uint32_t value = 7;
    uint64_t words = 1; /* for one word the software GPU brings all of a block */
    void *spins[] = {&held.spin_nanoseconds};
    MUST(cuEventRecord(held.first, NULL));
    for (unsigned long i = 0; i < held.count; i++) {
        void *fills[] = {&held.blocks[i], &value, &words};
        MUST(cuLaunchKernel(held.fill, 264, 1, 1, 256, 1, 1, 0, NULL, fills, NULL));
    }
    MUST(cuLaunchKernel(held.spin, 1, 1, 1, 1, 1, 1, 0, NULL, spins, NULL));
    MUST(cuEventRecord(held.last, NULL));
    MUST(cuEventSynchronize(held.last));
    MUST(cuEventElapsedTime(&milliseconds, held.first, held.last));
    nanosleep(&(struct timespec){.tv_nsec = (long)held.pause_nanoseconds}, NULL);
    return 1e6 * (double)milliseconds;
}

static double spin_for(unsigned long microseconds)
{
    held.spin_nanoseconds = microseconds * 1000;
    return 0;
}

static double pause_for(unsigned long microseconds)
{
    held.pause_nanoseconds = microseconds * 1000;
    return 0;
}

/* A step's time on the device and its pause. */
static double step(unsigned long count)
{
    double sum = 0;
    for (unsigned long i = 0; i < count; i++)
        sum += work();
    return sum / (double)count + (double)held.pause_nanoseconds;
}

static void *work_on(void *unused)
{
    MUST(cuCtxSetCurrent(held.context));
    while (!__atomic_load_n(&held.is_stopped, __ATOMIC_RELAXED)) {
        work();
        __atomic_add_fetch(&held.steps, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* Work without a pause until `stop`, which answers the steps. */
static double go(unsigned long unused)
{
    held.is_stopped = 0;
    held.steps = 0;
    return pthread_create(&held.worker, NULL, work_on, NULL);
}

static double stop(unsigned long unused)
{
    __atomic_store_n(&held.is_stopped, 1, __ATOMIC_RELAXED);
    pthread_join(held.worker, NULL);
    return (double)held.steps;
}

static const struct measure measures[] = {
    {"hold_plain", NULL, NULL, hold_plain},
    {"hold_managed", NULL, NULL, hold_managed},
    {"spin_for", NULL, NULL, spin_for},
    {"pause_for", NULL, NULL, pause_for},
    {"step", NULL, NULL, step},
    {"go", NULL, NULL, go},
    {"stop", NULL, NULL, stop},
    {NULL, NULL, NULL, NULL},
};

int main(int count, char **words)
{
    CUmodule module;
    CUdevice device;
    held.block_bytes = (count > 1 ? strtoul(words[1], NULL, 10) : 64) * MIB;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&held.context, device));
    MUST(cuCtxSetCurrent(held.context));
    MUST(cuEventCreate(&held.first, CU_EVENT_DEFAULT));
    MUST(cuEventCreate(&held.last, CU_EVENT_DEFAULT));
    MUST(cuModuleLoad(&module, getenv("BENCH_BUILTINS")));
    MUST(cuModuleGetFunction(&held.fill, module, "aliquot_fill"));
    MUST(cuModuleGetFunction(&held.spin, module, "aliquot_spin"));
    return answer_questions(measures);
}
