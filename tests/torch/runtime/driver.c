/* The driver behind the stand-in, the last error, and each thread's device. */
#define _GNU_SOURCE
#include "runtime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define DEVICES_MAX 16
#define VERSION 13000

static struct {
    pthread_once_t once;
    struct driver calls;
    CUresult opened;
    pthread_mutex_t mutex; /* guards `contexts` */
    CUcontext contexts[DEVICES_MAX];
} state = {.once = PTHREAD_ONCE_INIT, .mutex = PTHREAD_MUTEX_INITIALIZER};

static __thread cudaError_t last_error;
static __thread int current_device;

typedef CUresult (*query)(const char *name, void **function, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult *status);

static CUresult answer_absent(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static void *find(query ask, const char *name, int version)
{
    void *found = NULL;
    CUdriverProcAddressQueryResult status;
    if (ask == NULL || ask(name, &found, version, 0, &status) != CUDA_SUCCESS || found == NULL)
        return (void *)answer_absent;
    return found;
}

static void open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    query ask = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
#define DRIVER(name) state.calls.name = (__typeof__(&name))find(ask, #name, VERSION);
#define DRIVER_AT(name, version) state.calls.name = (__typeof__(&name))find(ask, #name, version);
#include "driver_calls.h"
    state.opened = library ? state.calls.cuInit(0) : CUDA_ERROR_NO_DEVICE;
}

const struct driver *driver(void)
{
    pthread_once(&state.once, open_driver);
    return &state.calls;
}

cudaError_t runtime_end(CUresult result)
{
    cudaError_t error = (cudaError_t)result;
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last_error = error;
    return error;
}

int runtime_device(void)
{
    return current_device;
}

CUresult runtime_enter(void)
{
    CUcontext current = NULL;
    const struct driver *calls = driver();
    if (state.opened)
        return state.opened;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&state.mutex);
    if (state.contexts[current_device] == NULL)
        result = calls->cuDevicePrimaryCtxRetain(&state.contexts[current_device], current_device);
    CUcontext wanted = state.contexts[current_device];
    pthread_mutex_unlock(&state.mutex);
    if (result == CUDA_SUCCESS && calls->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != wanted)
        result = calls->cuCtxSetCurrent(wanted);
    return result;
}

EXPORT cudaError_t cudaGetDeviceCount(int *count)
{
    const struct driver *calls = driver();
    return runtime_end(state.opened ? state.opened : calls->cuDeviceGetCount(count));
}

EXPORT cudaError_t cudaSetDevice(int device)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error)
        return error;
    if (device < 0 || device >= count || device >= DEVICES_MAX)
        return runtime_end(CUDA_ERROR_INVALID_DEVICE);
    current_device = device;
    return runtime_end(runtime_enter());
}

EXPORT cudaError_t cudaGetDevice(int *device)
{
    *device = current_device;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

EXPORT cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

EXPORT const char *cudaGetErrorName(cudaError_t error)
{
    const char *name = "cudaErrorUnknown";
    driver()->cuGetErrorName((CUresult)error, &name);
    return name ? name : "unrecognized error code";
}

EXPORT const char *cudaGetErrorString(cudaError_t error)
{
    const char *text = "unknown error";
    driver()->cuGetErrorString((CUresult)error, &text);
    return text ? text : "unrecognized error code";
}

EXPORT cudaError_t cudaDriverGetVersion(int *version)
{
    return runtime_end(driver()->cuDriverGetVersion(version));
}

EXPORT cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = VERSION;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned int version,
                                                    unsigned long long flags,
                                                    enum cudaDriverEntryPointQueryResult *status)
{
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    query ask = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    CUresult result = ask ? ask(symbol, function, (int)version, flags, &found) : CUDA_ERROR_NO_DEVICE;
    if (status)
        *status = (enum cudaDriverEntryPointQueryResult)found;
    return runtime_end(result);
}
