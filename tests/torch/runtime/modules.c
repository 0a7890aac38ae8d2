/* Registered code: the calls of nvcc's start-up code to a runtime, and launches by the address
 * of a host stub. The runtime loads a module at the first use of one of its functions; a
 * driver's kernel belongs to all contexts. */
#include "runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 65536
#define FRAMES 16

struct fat_wrapper {
    int magic, version;
    const void *data;
    void *unused;
};

struct image {
    const void *data;
    CUlibrary library;
    CUresult loaded;
    bool is_loaded;
};

struct symbol { /* a function or a variable, by the address of its host side */
    const void *host;
    const char *name;
    struct image *image;
    CUkernel kernel;
    struct symbol *next;
};

static struct {
    pthread_mutex_t mutex; /* guards everything here */
    struct symbol *buckets[BUCKETS];
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

struct frame {
    dim3 grid, block;
    size_t shared_bytes;
    void *stream;
};
static __thread struct frame frames[FRAMES];
static __thread int frame_count;

static struct symbol **bucket_of(const void *host)
{
    return &state.buckets[((uintptr_t)host >> 4) % BUCKETS];
}

static void add_symbol(struct image *image, const void *host, const char *name)
{
    struct symbol *symbol = calloc(1, sizeof *symbol);
    if (symbol == NULL)
        return;
    pthread_mutex_lock(&state.mutex);
    *symbol = (struct symbol){.host = host, .name = name, .image = image, .next = *bucket_of(host)};
    *bucket_of(host) = symbol;
    pthread_mutex_unlock(&state.mutex);
}

/* The caller holds the mutex. */
static struct symbol *find_symbol(const void *host)
{
    struct symbol *symbol = *bucket_of(host);
    while (symbol && symbol->host != host)
        symbol = symbol->next;
    if (symbol && !symbol->image->is_loaded) {
        struct image *image = symbol->image;
        image->loaded = driver()->cuLibraryLoadData(&image->library, image->data, NULL, NULL, 0, NULL, NULL, 0);
        image->is_loaded = true;
    }
    return symbol;
}

static CUresult find_function(const void *host, CUfunction *function)
{
    CUresult result = runtime_enter();
    if (result)
        return result;
    pthread_mutex_lock(&state.mutex);
    struct symbol *symbol = find_symbol(host);
    result = symbol ? symbol->image->loaded : (CUresult)cudaErrorInvalidDeviceFunction;
    if (result == CUDA_SUCCESS && symbol->kernel == NULL)
        result = driver()->cuLibraryGetKernel(&symbol->kernel, symbol->image->library, symbol->name);
    CUkernel kernel = result == CUDA_SUCCESS ? symbol->kernel : NULL;
    pthread_mutex_unlock(&state.mutex);
    return result ? result : driver()->cuKernelGetFunction(function, kernel);
}

EXPORT void **__cudaRegisterFatBinary(void *wrapper)
{
    struct image *image = calloc(1, sizeof *image);
    if (image)
        image->data = ((struct fat_wrapper *)wrapper)->data;
    return (void **)image;
}

EXPORT void __cudaRegisterFatBinaryEnd(void **handle)
{
}

EXPORT void __cudaUnregisterFatBinary(void **handle)
{
}

EXPORT char __cudaInitModule(void **handle)
{
    return 1;
}

EXPORT void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int thread_limit,
                                   void *thread_id, void *block_id, void *block, void *grid, int *warp)
{
    add_symbol((struct image *)handle, host, name);
}

EXPORT void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int is_external, size_t bytes,
                              int is_constant, int is_global)
{
    add_symbol((struct image *)handle, host, name);
}

/* Between <<<…>>> and the stub that launches. */
EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void *stream)
{
    if (frame_count == FRAMES)
        return 1;
    frames[frame_count++] = (struct frame){grid, block, shared_bytes, stream};
    return 0;
}

EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream)
{
    if (frame_count == 0)
        return runtime_end((CUresult)cudaErrorMissingConfiguration);
    struct frame *frame = &frames[--frame_count];
    *grid = frame->grid;
    *block = frame->block;
    *shared_bytes = frame->shared_bytes;
    *(void **)stream = frame->stream;
    return cudaSuccess;
}

EXPORT cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                                    cudaStream_t stream)
{
    CUfunction function;
    CUresult result = find_function(host, &function);
    return runtime_end(result ? result
                              : driver()->cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                                         (unsigned)shared_bytes, stream, arguments, NULL));
}

EXPORT cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
    *kernel = (cudaKernel_t)(uintptr_t)host;
    return cudaSuccess;
}

EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                                      size_t shared_bytes, cudaStream_t stream)
{
    return cudaLaunchKernel((const void *)kernel, grid, block, arguments, shared_bytes, stream);
}

EXPORT cudaError_t cudaLaunchCooperativeKernel(const void *host, dim3 grid, dim3 block, void **arguments,
                                               size_t shared_bytes, cudaStream_t stream)
{
    CUfunction function;
    CUresult result = find_function(host, &function);
    return runtime_end(result ? result
                              : driver()->cuLaunchCooperativeKernel(function, grid.x, grid.y, grid.z, block.x, block.y,
                                                                    block.z, (unsigned)shared_bytes, stream,
                                                                    arguments));
}

EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *host, void **arguments)
{
    CUfunction function;
    CUresult result = find_function(host, &function);
    if (result)
        return runtime_end(result);
    CUlaunchConfig same = {
        .gridDimX = config->gridDim.x, .gridDimY = config->gridDim.y, .gridDimZ = config->gridDim.z,
        .blockDimX = config->blockDim.x, .blockDimY = config->blockDim.y, .blockDimZ = config->blockDim.z,
        .sharedMemBytes = (unsigned)config->dynamicSmemBytes, .hStream = config->stream,
        .attrs = (CUlaunchAttribute *)config->attrs, .numAttrs = config->numAttrs,
    };
    return runtime_end(driver()->cuLaunchKernelEx(&same, function, arguments, NULL));
}

EXPORT cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *host)
{
    CUfunction function;
    int threads = 0, version = 0, registers = 0;
    memset(attributes, 0, sizeof *attributes);
    CUresult result = find_function(host, &function);
    if (result)
        return runtime_end(result);
    driver()->cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function);
    driver()->cuFuncGetAttribute(&version, CU_FUNC_ATTRIBUTE_BINARY_VERSION, function);
    driver()->cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function);
    attributes->maxThreadsPerBlock = threads;
    attributes->binaryVersion = attributes->ptxVersion = version;
    attributes->numRegs = registers;
    return cudaSuccess;
}

EXPORT cudaError_t cudaFuncSetAttribute(const void *host, enum cudaFuncAttribute name, int value)
{
    CUfunction function;
    CUresult result = find_function(host, &function);
    return runtime_end(result ? result : driver()->cuFuncSetAttribute(function, (CUfunction_attribute)name, value));
}

EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *host, int threads,
                                                                          size_t shared_bytes, unsigned int flags)
{
    CUfunction function;
    CUresult result = find_function(host, &function);
    return runtime_end(result ? result
                              : driver()->cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                                    blocks, function, threads, shared_bytes, flags));
}

EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *host, int threads,
                                                                 size_t shared_bytes)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, shared_bytes, 0);
}

static CUresult find_variable(const void *host, CUdeviceptr *address, size_t *bytes)
{
    CUresult result = runtime_enter();
    if (result)
        return result;
    pthread_mutex_lock(&state.mutex);
    struct symbol *symbol = find_symbol(host);
    result = symbol ? symbol->image->loaded : (CUresult)cudaErrorInvalidSymbol;
    if (result == CUDA_SUCCESS)
        result = driver()->cuLibraryGetGlobal(address, bytes, symbol->image->library, symbol->name);
    pthread_mutex_unlock(&state.mutex);
    return result;
}

EXPORT cudaError_t cudaGetSymbolAddress(void **address, const void *host)
{
    size_t bytes;
    return runtime_end(find_variable(host, (CUdeviceptr *)address, &bytes));
}

EXPORT cudaError_t cudaMemcpyToSymbol(const void *host, const void *from, size_t bytes, size_t offset,
                                      enum cudaMemcpyKind kind)
{
    CUdeviceptr address;
    size_t room;
    CUresult result = find_variable(host, &address, &room);
    if (result == CUDA_SUCCESS && (offset > room || bytes > room - offset))
        result = CUDA_ERROR_INVALID_VALUE;
    return runtime_end(result ? result : driver()->cuMemcpy(address + offset, (CUdeviceptr)(uintptr_t)from, bytes));
}
