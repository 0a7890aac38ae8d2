/* Threads whose contexts, streams, graphs and selves come and go while others launch. For sanitizers: prints how much
 * was launched and how often something failed that should not. */
#include <cuda.h>

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define WAYS 6

static int rounds;
static unsigned launched, failed;
static CUcontext shared;

static int expect(CUresult code, const char *call)
{
    if (code == CUDA_SUCCESS)
        return 1;
    fprintf(stderr, "%s: %d\n", call, code);
    __atomic_fetch_add(&failed, 1, __ATOMIC_RELAXED);
    return 0;
}
#define EXPECT(call) expect(call, #call)

static CUfunction find_spin(void)
{
    CUmodule module;
    CUfunction function = NULL;
    if (EXPECT(cuModuleLoad(&module, getenv("ALIQUOT_BUILTINS"))))
        EXPECT(cuModuleGetFunction(&function, module, "aliquot_spin"));
    return function;
}

static void spin(CUfunction function, CUstream stream, int count)
{
    uint64_t nanoseconds = 20000;
    void *arguments[] = {&nanoseconds};
    for (int i = 0; i < count; i++)
        if (EXPECT(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL)))
            __atomic_fetch_add(&launched, 1, __ATOMIC_RELAXED);
}

/* Ends with launches and streams in it. */
static void context_of_its_own(unsigned round)
{
    CUcontext context;
    CUstream stream;
    if (!EXPECT(cuCtxCreate(&context, NULL, 0, (CUdevice)(round % 2))))
        return;
    CUfunction function = find_spin();
    EXPECT(cuStreamCreate(&stream, round % 3 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    spin(function, stream, 5);
    spin(function, round % 2 ? CU_STREAM_PER_THREAD : NULL, 40);
    EXPECT(cuCtxDestroy(context));
}

static void primary_of_another_device(unsigned round)
{
    CUcontext context;
    CUstream stream;
    EXPECT(cuDevicePrimaryCtxRetain(&context, 1));
    EXPECT(cuCtxPushCurrent(context));
    CUfunction function = find_spin();
    EXPECT(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    spin(function, stream, 10);
    EXPECT(cuCtxPopCurrent(&context));
    if (round % 2)
        EXPECT(cuDevicePrimaryCtxReset(1));
    EXPECT(cuDevicePrimaryCtxRelease(1));
}

static void streams(unsigned round)
{
    CUstream made[8];
    EXPECT(cuCtxSetCurrent(shared));
    CUfunction function = find_spin();
    for (int i = 0; i < 8; i++) {
        EXPECT(cuStreamCreate(&made[i], (round + (unsigned)i) % 4 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
        spin(function, made[i], 3);
    }
    for (int i = 0; i < 8; i++)
        EXPECT(cuStreamDestroy(made[i]));
}

static void graphs(unsigned round)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    EXPECT(cuCtxSetCurrent(shared));
    CUfunction function = find_spin();
    EXPECT(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT(cuStreamBeginCapture(stream, (CUstreamCaptureMode)(round % 2 ? CU_STREAM_CAPTURE_MODE_RELAXED
                                                                        : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)));
    spin(function, stream, 3);
    EXPECT(cuStreamEndCapture(stream, &graph));
    EXPECT(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++)
        EXPECT(cuGraphLaunch(exec, stream));
    EXPECT(cuGraphExecDestroy(exec));
    EXPECT(cuGraphDestroy(graph));
    EXPECT(cuStreamDestroy(stream));
}

static void *launch_for_ever(void *function)
{
    EXPECT(cuCtxSetCurrent(shared));
    for (;;) {
        spin(function, CU_STREAM_PER_THREAD, 10);
        pthread_testcancel();
    }
    return NULL;
}

static void cancelled(unsigned round)
{
    pthread_t thread;
    EXPECT(cuCtxSetCurrent(shared));
    pthread_create(&thread, NULL, launch_for_ever, find_spin());
    while (rand_r(&round) % 8)
        spin(find_spin(), NULL, 1);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
}

static void waits(unsigned round)
{
    EXPECT(cuCtxSetCurrent(shared));
    spin(find_spin(), round % 2 ? NULL : CU_STREAM_PER_THREAD, 50);
    EXPECT(cuStreamSynchronize(round % 2 ? NULL : CU_STREAM_PER_THREAD));
}

static void *work(void *number)
{
    static void (*const ways[WAYS])(unsigned) = {context_of_its_own, primary_of_another_device, streams,
                                                 graphs,             cancelled,                 waits};
    for (int round = 0; round < rounds; round++)
        ways[(uintptr_t)number]((unsigned)round);
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t threads[WAYS];
    rounds = count > 1 ? atoi(arguments[1]) : 20;
    if (!EXPECT(cuInit(0)) || !EXPECT(cuDevicePrimaryCtxRetain(&shared, 0)) || !EXPECT(cuCtxSetCurrent(shared)))
        return 1;
    for (uintptr_t i = 0; i < WAYS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (unsigned i = 0; i < WAYS; i++)
        pthread_join(threads[i], NULL);
    EXPECT(cuCtxSetCurrent(shared));
    EXPECT(cuCtxSynchronize());
    printf("%u\n", launched);
    fflush(stdout);
    getchar();
    return failed ? 1 : 0;
}
