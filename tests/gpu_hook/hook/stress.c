/* Threads that allocate at the edge of a quota, launch, ask and change contexts, linked with the hook's own sources so
 * that a sanitizer sees both. Prints the number of allocations that succeeded and were refused. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 4
#define HELD 16

static int rounds;
static unsigned succeeded, refused, failed;

static void expect(int is_true)
{
    if (!is_true)
        __atomic_fetch_add(&failed, 1, __ATOMIC_RELAXED);
}

/* Families that charge by other ways than linear memory: pools by what they hold, host memory on a quota of its own. */
static void use_other_families(unsigned *seed)
{
    CUdeviceptr in_order[2] = {0};
    void *host;
    for (int i = 0; i < 2; i++)
        if (cuMemAllocAsync(&in_order[i], (size_t)1 << (12 + rand_r(seed) % 10), NULL) != CUDA_SUCCESS)
            in_order[i] = 0;
    if (cuMemAllocHost_v2(&host, 5000) == CUDA_SUCCESS)
        expect(cuMemFreeHost(host) == CUDA_SUCCESS);
    for (int i = 0; i < 2; i++)
        if (in_order[i])
            expect(cuMemFreeAsync(in_order[i], NULL) == CUDA_SUCCESS);
    if (rand_r(seed) % 4 == 0)
        expect(cuStreamSynchronize(NULL) == CUDA_SUCCESS);
}

static void *work(void *seed_address)
{
    unsigned seed = *(unsigned *)seed_address;
    CUdeviceptr held[HELD] = {0};
    CUcontext context;
    size_t free_bytes, total_bytes;
    expect(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    expect(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    for (int round = 0; round < rounds; round++) {
        CUdeviceptr *slot = &held[rand_r(&seed) % HELD];
        if (*slot) {
            expect(cuMemFree_v2(*slot) == CUDA_SUCCESS);
            *slot = 0;
        } else if (cuMemAlloc_v2(slot, (size_t)1 << (10 + rand_r(&seed) % 14)) == CUDA_SUCCESS) {
            __atomic_fetch_add(&succeeded, 1, __ATOMIC_RELAXED);
        } else {
            *slot = 0;
            __atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
        }
        expect(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_SUCCESS);
        expect(cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS && free_bytes <= total_bytes);
        if (round % 8 == 0)
            use_other_families(&seed);
        if (round % 64 == 0)
            expect(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    }
    for (int i = 0; i < HELD; i++)
        if (held[i])
            expect(cuMemFree_v2(held[i]) == CUDA_SUCCESS);
    return NULL;
}

/* Before cuInit and beside it, as runtime libraries do; the driver hands out an unknown
 * function. */
static void *ask(void *unused)
{
    void *function;
    for (int i = 0; i < 100; i++)
        expect(cuGetProcAddress_v2("cuMysteryCreate", &function, 12000, 0, NULL) == CUDA_SUCCESS);
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t threads[THREADS], askers[THREADS];
    unsigned seeds[THREADS];
    rounds = count > 1 ? atoi(arguments[1]) : 1000;
    for (unsigned i = 0; i < THREADS; i++)
        pthread_create(&askers[i], NULL, ask, NULL);
    expect(cuInit(0) == CUDA_SUCCESS);
    for (unsigned i = 0; i < THREADS; i++) {
        seeds[i] = i + 1;
        pthread_create(&threads[i], NULL, work, &seeds[i]);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        pthread_join(askers[i], NULL);
    }
    expect(cuStreamSynchronize(NULL) == CUDA_SUCCESS);
    printf("%u %u\n", succeeded, refused);
    fflush(stdout);
    getchar(); /* the test looks at the pages now */
    return failed ? 1 : 0;
}
