/* A kernel's process that holds memory, works, and is swapped. Linked to libcuda.so.1: the
 * folder that the loader searches first decides whether a hook stands before the driver. A
 * question is `NAME COUNT`; answers are nanoseconds, or as stated. */
#include "../hook/measure.h"

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define BLOCK_BYTES (64 * MIB)
#define BLOCKS_MAX 4096
#define STEP_LAUNCHES 200
#define BATCH_BYTES (16 * MIB)

static struct {
    CUdeviceptr blocks[BLOCKS_MAX];
    unsigned long count;
    CUfunction fill, hash, spin;
    CUdevice device;
    char *pinned;
    CUdeviceptr sum, managed;
    size_t managed_bytes;
    uint32_t pattern;
} held;

static void launch(CUfunction function, void **arguments)
{
    MUST(cuLaunchKernel(function, 264, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL));
}

static void fill_blocks(void)
{
    uint64_t words = BLOCK_BYTES / 4;
    held.pattern++;
    for (unsigned long i = 0; i < held.count; i++) {
        uint32_t value = held.pattern + (uint32_t)i;
        void *arguments[] = {&held.blocks[i], &value, &words};
        launch(held.fill, arguments);
    }
    MUST(cuCtxSynchronize());
}

/* Resizes the memory to `mib` MiB; answers how many bytes it holds. */
static double hold(unsigned long mib)
{
    unsigned long wanted = mib * MIB / BLOCK_BYTES;
    while (held.count > wanted)
        MUST(cuMemFree(held.blocks[--held.count]));
    while (held.count < wanted && held.count < BLOCKS_MAX)
        MUST(cuMemAlloc(&held.blocks[held.count++], BLOCK_BYTES));
    fill_blocks();
    return (double)held.count * BLOCK_BYTES;
}

/* New contents, so that no copy of the old ones would do. */
static double touch(unsigned long unused)
{
    uint64_t begin = now_nanoseconds();
    fill_blocks();
    return (double)(now_nanoseconds() - begin);
}

static double first_launch(unsigned long unused)
{
    uint64_t none = 0;
    void *arguments[] = {&none};
    uint64_t begin = now_nanoseconds();
    launch(held.spin, arguments);
    MUST(cuCtxSynchronize());
    return (double)(now_nanoseconds() - begin);
}

/* Answers the number of blocks with wrong contents. */
static double verify(unsigned long unused)
{
    uint64_t words = BLOCK_BYTES / 4, got;
    double wrong = 0;
    for (unsigned long i = 0; i < held.count; i++) {
        uint64_t want = 0;
        void *arguments[] = {&held.blocks[i], &words, &held.sum};
        MUST(cuMemsetD32(held.sum, 0, 2));
        launch(held.hash, arguments);
        MUST(cuMemcpyDtoH(&got, held.sum, sizeof got));
        for (uint64_t j = 0; j < words; j++) {
            uint64_t mix = (j + 1) * 0x9e3779b97f4a7c15ull + (uint32_t)(held.pattern + (uint32_t)i);
            mix = (mix ^ mix >> 30) * 0xbf58476d1ce4e5b9ull;
            mix = (mix ^ mix >> 27) * 0x94d049bb133111ebull;
            want += mix ^ mix >> 31;
        }
        wrong += got != want;
    }
    return wrong;
}

/* Steps of training: a batch goes up, short launches follow, a number comes down. Memory is
 * allocated and freed once for all of them, for frameworks keep freed memory. */
static double step(unsigned long count)
{
    uint64_t nanoseconds = 20000;
    void *arguments[] = {&nanoseconds};
    CUdeviceptr batch;
    uint64_t begin = now_nanoseconds();
    MUST(cuMemAlloc(&batch, BATCH_BYTES));
    for (unsigned long i = 0; i < count; i++) {
        MUST(cuMemcpyHtoDAsync(batch, held.pinned, MIB, NULL));
        for (int j = 0; j < STEP_LAUNCHES; j++)
            launch(held.spin, arguments);
        MUST(cuMemcpyDtoHAsync(held.pinned, batch, 64 * KIB, NULL));
        MUST(cuStreamSynchronize(NULL));
    }
    MUST(cuMemFree(batch));
    return (double)(now_nanoseconds() - begin) / (double)count;
}

static double allocate(unsigned long count)
{
    CUdeviceptr batch;
    uint64_t begin = now_nanoseconds();
    for (unsigned long i = 0; i < count; i++) {
        MUST(cuMemAlloc(&batch, BATCH_BYTES));
        MUST(cuMemFree(batch));
    }
    return (double)(now_nanoseconds() - begin) / (double)count;
}

static double prefetch(CUmemLocationType type)
{
    CUmemLocation where = {.type = type, .id = held.device};
    uint64_t begin = now_nanoseconds();
    MUST(cuMemPrefetchAsync(held.managed, held.managed_bytes, where, 0, NULL));
    MUST(cuCtxSynchronize());
    return (double)held.managed_bytes / (double)(now_nanoseconds() - begin);
}

/* GB/s, of `mib` MiB of unified memory that is on the device. */
static double managed_out(unsigned long mib)
{
    if (held.managed_bytes != mib * MIB) {
        held.managed_bytes = mib * MIB;
        MUST(cuMemAllocManaged(&held.managed, held.managed_bytes, CU_MEM_ATTACH_GLOBAL));
        prefetch(CU_MEM_LOCATION_TYPE_DEVICE);
    }
    MUST(cuMemsetD32(held.managed, ++held.pattern, held.managed_bytes / 4));
    MUST(cuCtxSynchronize());
    return prefetch(CU_MEM_LOCATION_TYPE_HOST);
}

/* GB/s, after managed_out. */
static double managed_in(unsigned long unused)
{
    return prefetch(CU_MEM_LOCATION_TYPE_DEVICE);
}

/* Answers the bytes in use on the device, as this process sees it. */
static double used_bytes(unsigned long unused)
{
    size_t free_bytes, total_bytes;
    MUST(cuMemGetInfo(&free_bytes, &total_bytes));
    return (double)(total_bytes - free_bytes);
}

static const struct measure measures[] = {
    {"hold", NULL, NULL, hold},
    {"touch", NULL, NULL, touch},
    {"first_launch", NULL, NULL, first_launch},
    {"verify", NULL, NULL, verify},
    {"step", NULL, NULL, step},
    {"allocate", NULL, NULL, allocate},
    {"managed_out", NULL, NULL, managed_out},
    {"managed_in", NULL, NULL, managed_in},
    {"used_bytes", NULL, NULL, used_bytes},
    {NULL, NULL, NULL, NULL},
};

int main(void)
{
    CUcontext context;
    CUmodule module;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&held.device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, held.device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoad(&module, getenv("BENCH_BUILTINS")));
    MUST(cuModuleGetFunction(&held.fill, module, "aliquot_fill"));
    MUST(cuModuleGetFunction(&held.hash, module, "aliquot_hash"));
    MUST(cuModuleGetFunction(&held.spin, module, "aliquot_spin"));
    MUST(cuMemAlloc(&held.sum, sizeof(uint64_t)));
    MUST(cuMemAllocHost((void **)&held.pinned, MIB));
    first_launch(0);
    return answer_questions(measures);
}
