/* A program with timed calls on a GPU. Linked to libcuda.so.1: the folder that the loader
 * searches first decides whether it gets a hook. The work is a built-in kernel that returns at
 * once; a device that executes nothing else sets a floor, not zero. */
#include "measure.h"

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define GRAPHS 3

static const unsigned graph_nodes[GRAPHS] = {1, 100, 1000};
static CUgraphExec graphs[GRAPHS];
static CUfunction function;
static unsigned long long no_nanoseconds;
static void *arguments[] = {&no_nanoseconds};

static void launch(void)
{
    MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
}

static void synchronize(void)
{
    MUST(cuCtxSynchronize());
}

static void run_launch(unsigned long count)
{
    for (unsigned long i = 0; i < count; i++)
        launch();
}

static void run_launch_and_wait(unsigned long count)
{
    for (unsigned long i = 0; i < count; i++) {
        launch();
        synchronize();
    }
}

static void run_mem_info(unsigned long count)
{
    size_t free_bytes, total_bytes;
    for (unsigned long i = 0; i < count; i++)
        MUST(cuMemGetInfo(&free_bytes, &total_bytes));
}

#define DEFINE_GRAPH(index)                              \
    static void run_graph_##index(unsigned long count)   \
    {                                                    \
        for (unsigned long i = 0; i < count; i++)        \
            MUST(cuGraphLaunch(graphs[index], NULL));    \
    }
DEFINE_GRAPH(0)
DEFINE_GRAPH(1)
DEFINE_GRAPH(2)

#define DEFINE_ALLOC(name, bytes)                        \
    static void run_alloc_##name(unsigned long count)    \
    {                                                    \
        for (unsigned long i = 0; i < count; i++) {      \
            CUdeviceptr pointer;                         \
            MUST(cuMemAlloc(&pointer, bytes));           \
            MUST(cuMemFree(pointer));                    \
        }                                                \
    }
DEFINE_ALLOC(4k, 4 * KIB)
DEFINE_ALLOC(2m, 2 * MIB)
DEFINE_ALLOC(64m, 64 * MIB)

static const struct measure measures[] = {
    {"launch", run_launch, synchronize, NULL},
    {"launch_and_wait", run_launch_and_wait, NULL, NULL},
    {"graph_1", run_graph_0, synchronize, NULL},
    {"graph_100", run_graph_1, synchronize, NULL},
    {"graph_1000", run_graph_2, synchronize, NULL},
    {"alloc_4k", run_alloc_4k, NULL, NULL},
    {"alloc_2m", run_alloc_2m, NULL, NULL},
    {"alloc_64m", run_alloc_64m, NULL, NULL},
    {"mem_info", run_mem_info, NULL, NULL},
    {NULL, NULL, NULL, NULL},
};

static CUgraphExec make_graph(unsigned nodes)
{
    CUDA_KERNEL_NODE_PARAMS what = {.func = function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
                                    .blockDimY = 1, .blockDimZ = 1, .kernelParams = arguments};
    CUgraph graph;
    CUgraphExec executable;
    CUgraphNode last = NULL;
    MUST(cuGraphCreate(&graph, 0));
    for (unsigned i = 0; i < nodes; i++) {
        CUgraphNode before = last;
        MUST(cuGraphAddKernelNode(&last, graph, &before, before ? 1 : 0, &what));
    }
    MUST(cuGraphInstantiate(&executable, graph, 0));
    return executable;
}

int main(void)
{
    CUdevice device;
    CUcontext context;
    CUmodule module;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoad(&module, getenv("BENCH_BUILTINS")));
    MUST(cuModuleGetFunction(&function, module, "aliquot_spin"));
    for (int i = 0; i < GRAPHS; i++)
        graphs[i] = make_graph(graph_nodes[i]);
    return answer_questions(measures);
}
