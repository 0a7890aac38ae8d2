/* Threads that allocate, free, launch, copy and replay a graph, and know what every byte must
 * be. `cycles THREADS SEED`; BUILTINS is the path of the built-in kernels. It goes on until its
 * input ends; it must not notice that its memory is swapped out and in. A line `hash` on the
 * input is answered by one number over all contents; after `pause` nothing changes until `work`.
 * At the end: operations, refused allocations, compared bytes. A wrong byte ends it with 1. */
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_MAX 16
#define HELD 8
#define KIB ((size_t)1 << 10)
#define LARGEST (3u << 20)
#define GRAPH_BYTES (2u << 20)

/* Words are `value + index * slope`. */
struct content {
    uint32_t value, slope;
};

struct block {
    CUdeviceptr address; /* 0: none */
    size_t bytes;
    struct content content;
};

struct worker {
    unsigned seed;
    pthread_t thread;
    CUcontext context;
    CUstream stream;
    CUfunction fill, copy, hash; /* of its device */
    uint32_t *host; /* pageable or page-locked, by turns of threads */
    struct block blocks[HELD + 1]; /* the last one is the graph's */
    CUdeviceptr sum;
    uint32_t graph_host[GRAPH_BYTES / 16]; /* the graph copies from here */
    CUgraphExec graph;
    uint64_t operations, refused, compared;
};

static struct {
    pthread_rwlock_t rest; /* held for writing: no thread operates */
    bool is_over;
    struct worker workers[THREADS_MAX];
    int devices;
} test = {.rest = PTHREAD_RWLOCK_INITIALIZER};

#define MUST(call)                                                                       \
    do {                                                                                 \
        CUresult must_result = (call);                                                   \
        if (must_result != CUDA_SUCCESS) {                                               \
            fprintf(stderr, "%d: %s answered %d\n", __LINE__, #call, (int)must_result);  \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

static unsigned choose(struct worker *worker, unsigned count)
{
    return (unsigned)rand_r(&worker->seed) % count;
}

static void launch(CUfunction function, void **arguments, CUstream stream)
{
    MUST(cuLaunchKernel(function, 32, 1, 1, 128, 1, 1, 0, stream, arguments, NULL));
}

static void fill(struct worker *worker, struct block *block)
{
    uint64_t words = block->bytes / 4;
    uint32_t value = (uint32_t)rand_r(&worker->seed);
    void *arguments[] = {&block->address, &value, &words};
    launch(worker->fill, arguments, worker->stream);
    block->content = (struct content){value, 0};
}

static void upload(struct worker *worker, struct block *block)
{
    block->content = (struct content){(uint32_t)rand_r(&worker->seed), 1 + choose(worker, 99)};
    MUST(cuStreamSynchronize(worker->stream));
    for (size_t i = 0; i < block->bytes / 4; i++)
        worker->host[i] = block->content.value + (uint32_t)i * block->content.slope;
    MUST(cuMemcpyHtoDAsync(block->address, worker->host, block->bytes, worker->stream));
}

static void compare(struct worker *worker, const struct block *block)
{
    MUST(cuMemcpyDtoHAsync(worker->host, block->address, block->bytes, worker->stream));
    MUST(cuStreamSynchronize(worker->stream));
    for (size_t i = 0; i < block->bytes / 4; i++)
        if (worker->host[i] != block->content.value + (uint32_t)i * block->content.slope) {
            fprintf(stderr, "%zu bytes at %llx differ from byte %zu on: %x\n", block->bytes,
                    (unsigned long long)block->address, 4 * i, worker->host[i]);
            exit(1);
        }
    worker->compared += block->bytes;
}

static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ value >> 27) * 0x94d049bb133111ebull;
    return value ^ value >> 31;
}

static uint64_t hash_on_device(struct worker *worker, const struct block *block)
{
    uint64_t words = block->bytes / 4, sum;
    void *arguments[] = {(void *)&block->address, &words, &worker->sum};
    MUST(cuMemsetD32Async(worker->sum, 0, 2, worker->stream));
    launch(worker->hash, arguments, worker->stream);
    MUST(cuMemcpyDtoHAsync(&sum, worker->sum, sizeof sum, worker->stream));
    MUST(cuStreamSynchronize(worker->stream));
    return sum;
}

static void hash(struct worker *worker, const struct block *block)
{
    uint64_t want = 0;
    for (size_t i = 0; i < block->bytes / 4; i++)
        want += mix((i + 1) * 0x9e3779b97f4a7c15ull + (uint32_t)(block->content.value + (uint32_t)i * block->content.slope));
    if (hash_on_device(worker, block) != want) {
        fprintf(stderr, "%zu bytes at %llx have another hash\n", block->bytes, (unsigned long long)block->address);
        exit(1);
    }
    worker->compared += block->bytes;
}

static void copy_between(struct worker *worker, struct block *to, const struct block *from)
{
    uint64_t words = to->bytes / 4;
    void *arguments[] = {&to->address, (void *)&from->address, &words};
    if (to == from || !from->address || from->bytes < to->bytes)
        return;
    if (choose(worker, 2))
        MUST(cuMemcpyDtoDAsync(to->address, from->address, to->bytes, worker->stream));
    else
        launch(worker->copy, arguments, worker->stream);
    to->content = from->content;
}

static void ask(const struct block *block)
{
    CUdeviceptr start;
    size_t bytes, free_bytes, total_bytes;
    CUmemorytype type;
    MUST(cuMemGetAddressRange(&start, &bytes, block->address + block->bytes - 1));
    MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block->address));
    MUST(cuMemGetInfo(&free_bytes, &total_bytes));
    if (start != block->address || bytes < block->bytes || type != CU_MEMORYTYPE_DEVICE || free_bytes > total_bytes) {
        fprintf(stderr, "%zu bytes at %llx are said to be %zu at %llx\n", block->bytes,
                (unsigned long long)block->address, bytes, (unsigned long long)start);
        exit(1);
    }
}

static void allocate(struct worker *worker, struct block *block)
{
    block->bytes = choose(worker, 3) ? 1024 * KIB + 4 * choose(worker, LARGEST / 4 - 256 * KIB)
                                     : 4 * (1 + choose(worker, 128 * KIB));
    CUresult result = choose(worker, 2) ? cuMemAlloc(&block->address, block->bytes)
                                        : cuMemAllocAsync(&block->address, block->bytes, worker->stream);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        block->address = 0;
        worker->refused++;
        return;
    }
    MUST(result);
    upload(worker, block);
}

static void use_a_pool(struct worker *worker)
{
    struct block block = {.bytes = 512 * KIB};
    CUresult result = cuMemAllocAsync(&block.address, block.bytes, worker->stream);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        worker->refused++;
        return;
    }
    MUST(result);
    fill(worker, &block);
    compare(worker, &block);
    MUST(cuMemFreeAsync(block.address, worker->stream));
}

static void operate(struct worker *worker)
{
    struct block *block = &worker->blocks[choose(worker, HELD)];
    unsigned what = choose(worker, 9);
    if (what == 8) {
        use_a_pool(worker);
    } else if (what == 7) {
        MUST(cuMemsetD8Async(worker->blocks[HELD].address, 0, GRAPH_BYTES, worker->stream));
        MUST(cuGraphLaunch(worker->graph, worker->stream)); /* as it was made: what the test is about */
        compare(worker, &worker->blocks[HELD]);
    } else if (!block->address) {
        allocate(worker, block);
    } else if (what == 0) {
        if (choose(worker, 2))
            MUST(cuMemFree(block->address));
        else
            MUST(cuMemFreeAsync(block->address, worker->stream));
        block->address = 0;
    } else if (what == 1) {
        upload(worker, block);
    } else if (what == 2) {
        copy_between(worker, block, &worker->blocks[choose(worker, HELD)]);
    } else if (what == 3) {
        fill(worker, block);
    } else if (what == 4) {
        hash(worker, block);
    } else if (what == 5) {
        compare(worker, block);
    } else {
        ask(block);
    }
    worker->operations++;
}

/* A quarter of the block by each kind of node that touches memory: a kernel, a set, copies from the device and the host. */
static void make_graph(struct worker *worker)
{
    struct block *block = &worker->blocks[HELD];
    block->bytes = GRAPH_BYTES;
    block->content = (struct content){0xabcd0000u + worker->seed % 1000, 0};
    size_t quarter = block->bytes / 4;
    uint64_t words = quarter / 4;
    CUgraph graph;
    MUST(cuMemAlloc(&block->address, block->bytes));
    for (size_t i = 0; i < words; i++)
        worker->graph_host[i] = block->content.value;
    void *arguments[] = {&block->address, &block->content.value, &words};
    MUST(cuStreamBeginCapture(worker->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(worker->fill, arguments, worker->stream);
    MUST(cuMemsetD32Async(block->address + quarter, block->content.value, words, worker->stream));
    MUST(cuMemcpyDtoDAsync(block->address + 2 * quarter, block->address, quarter, worker->stream));
    MUST(cuMemcpyHtoDAsync(block->address + 3 * quarter, worker->graph_host, quarter, worker->stream));
    MUST(cuStreamEndCapture(worker->stream, &graph));
    MUST(cuGraphInstantiate(&worker->graph, graph, 0));
    MUST(cuGraphLaunch(worker->graph, worker->stream));
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    MUST(cuCtxSetCurrent(worker->context));
    for (bool is_over = false; !is_over;) {
        pthread_rwlock_rdlock(&test.rest);
        is_over = test.is_over;
        operate(worker);
        pthread_rwlock_unlock(&test.rest);
    }
    for (int i = 0; i <= HELD; i++)
        if (worker->blocks[i].address) {
            compare(worker, &worker->blocks[i]);
            MUST(cuMemFree(worker->blocks[i].address));
        }
    return NULL;
}

static void begin_worker(struct worker *worker, unsigned number, unsigned seed)
{
    worker->seed = seed * 1000 + number;
    MUST(cuDevicePrimaryCtxRetain(&worker->context, (int)number % test.devices));
    MUST(cuCtxSetCurrent(worker->context));
    MUST(cuStreamCreate(&worker->stream, CU_STREAM_NON_BLOCKING));
    CUmodule module;
    MUST(cuModuleLoad(&module, getenv("BUILTINS")));
    MUST(cuModuleGetFunction(&worker->fill, module, "aliquot_fill"));
    MUST(cuModuleGetFunction(&worker->copy, module, "aliquot_copy"));
    MUST(cuModuleGetFunction(&worker->hash, module, "aliquot_hash"));
    if (number % 2)
        MUST(cuMemAllocHost((void **)&worker->host, LARGEST + 4 * KIB));
    else
        worker->host = malloc(LARGEST + 4 * KIB);
    MUST(cuMemAlloc(&worker->sum, sizeof(uint64_t)));
    make_graph(worker);
}

static uint64_t hash_all(unsigned threads)
{
    uint64_t all = 0;
    for (unsigned i = 0; i < threads; i++)
        for (int j = 0; j <= HELD; j++) {
            struct worker *worker = &test.workers[i];
            MUST(cuCtxSetCurrent(worker->context));
            if (worker->blocks[j].address)
                all = mix(all + hash_on_device(worker, &worker->blocks[j]));
        }
    return all;
}

static void answer_questions(unsigned threads)
{
    char line[64];
    bool is_paused = false;
    while (fgets(line, sizeof line, stdin)) {
        bool pauses = strcmp(line, "pause\n") == 0, works = strcmp(line, "work\n") == 0;
        if (!is_paused)
            pthread_rwlock_wrlock(&test.rest);
        if (pauses || works)
            puts(pauses ? "paused" : "at work");
        else
            printf("%llx\n", (unsigned long long)hash_all(threads));
        is_paused = pauses || (is_paused && !works);
        if (!is_paused)
            pthread_rwlock_unlock(&test.rest);
    }
    if (is_paused)
        pthread_rwlock_unlock(&test.rest);
}

int main(int count, char **arguments)
{
    uint64_t operations = 0, refused = 0, compared = 0;
    pthread_rwlockattr_t writers_first;
    if (count != 3)
        return 2;
    unsigned threads = (unsigned)atoi(arguments[1]);
    pthread_rwlockattr_init(&writers_first);
    pthread_rwlockattr_setkind_np(&writers_first, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&test.rest, &writers_first);
    setvbuf(stdout, NULL, _IOLBF, 0);
    MUST(cuInit(0));
    MUST(cuDeviceGetCount(&test.devices));
    for (unsigned i = 0; i < threads; i++)
        begin_worker(&test.workers[i], i, (unsigned)atoi(arguments[2]));
    for (unsigned i = 0; i < threads; i++)
        pthread_create(&test.workers[i].thread, NULL, work, &test.workers[i]);
    puts("ready");
    answer_questions(threads);
    pthread_rwlock_wrlock(&test.rest);
    test.is_over = true;
    pthread_rwlock_unlock(&test.rest);
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(test.workers[i].thread, NULL);
        operations += test.workers[i].operations;
        refused += test.workers[i].refused;
        compared += test.workers[i].compared;
    }
    printf("%llu %llu %llu\n", (unsigned long long)operations, (unsigned long long)refused,
           (unsigned long long)compared);
    return 0;
}
