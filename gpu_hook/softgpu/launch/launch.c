/* Launches. The arguments are copied at the call; then the launch waits for its turn and takes
 * device time. A built-in computes, any other CUDA kernel is timed and computes nothing. */
#include <stdatomic.h>
#include <string.h>

#include "queue/captures.h"
#include "driver/driver.h"
#include "device/engine.h"
#include "driver/green.h"
#include "implemented.h"
#include "driver/launch_limits.h"
#include "device/log.h"
#include "managed/managed.h"
#include "modules/modules.h"
#include "launch/occupancy.h"
#include "queue/streams.h"
#include "memory/accesses.h"
#include "queue/work_items.h"
#include "launch/launch.h"

struct launch {
    const struct builtin *builtin;
    uint64_t nanoseconds; /* on the whole device */
    uint64_t blocks;
    uint32_t block_threads, shared_bytes;
    uint32_t argument_bytes;
    int32_t priority;
    int has_priority; /* of its own, whatever its stream's is */
    _Alignas(16) unsigned char arguments[];
};

static CUresult run_launch(struct work_item *work, uint64_t *clock)
{
    const struct launch *launch = (const struct launch *)work->payload;
    unsigned device = work->stream->context->physical;
    uint32_t written = launch->builtin ? launch->builtin->written : BUILTIN_WRITES_NOTHING;
    *clock = managed_use_arguments(launch->arguments, launch->argument_bytes, device, written, *clock);
    accesses_begin();
    int failed = launch->builtin && launch->builtin->run(launch->arguments, device) != 0;
    accesses_end();
    uint64_t nanoseconds = occupancy_nanoseconds(work->stream->green, launch->nanoseconds, launch->blocks,
                                             launch->block_threads, launch->shared_bytes);
    struct demand demand = {*clock, nanoseconds, launch->has_priority ? launch->priority : work->stream->priority,
                            &work->is_expected};
    *clock = engine_run(&driver.attachment, device, &demand);
    return failed ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

static CUresult check_geometry(const CUlaunchConfig *config, const struct function *function, int is_cooperative)
{
    uint64_t threads = (uint64_t)config->blockDimX * config->blockDimY * config->blockDimZ;
    int shared_limit = function->dynamic_shared_bytes ? function->dynamic_shared_bytes : LIMIT_SHARED_BYTES;
    if (config->gridDimX < 1 || config->gridDimY < 1 || config->gridDimZ < 1 || config->gridDimX > LIMIT_GRID_X ||
        config->gridDimY > LIMIT_GRID_Y || config->gridDimZ > LIMIT_GRID_Z || threads < 1 ||
        config->blockDimX > LIMIT_BLOCK_X || config->blockDimY > LIMIT_BLOCK_Y || config->blockDimZ > LIMIT_BLOCK_Z)
        return CUDA_ERROR_INVALID_VALUE;
    if (threads > LIMIT_BLOCK_THREADS || config->sharedMemBytes > (unsigned)shared_limit)
        return CUDA_ERROR_INVALID_VALUE;
    if (is_cooperative) {
        uint64_t blocks = (uint64_t)config->gridDimX * config->gridDimY * config->gridDimZ;
        uint64_t room = (uint64_t)occupancy_blocks((int)threads, config->sharedMemBytes) *
                        driver.attachment.machine->sm_count;
        if (blocks > room)
            return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    }
    return CUDA_SUCCESS;
}

/* `extra` is a list of key and value: a packed buffer and its size. */
static CUresult copy_packed(const struct function *function, void **extra, unsigned char *arguments)
{
    const void *buffer = NULL;
    size_t bytes = 0;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = *(const size_t *)extra[1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (function->is_opaque)
        return CUDA_SUCCESS;
    if ((buffer == NULL && function->parameter_bytes) || bytes < function->parameter_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(arguments, buffer, function->parameter_bytes);
    return CUDA_SUCCESS;
}

static CUresult copy_arguments(const struct function *function, void **parameters, void **extra,
                               unsigned char *arguments)
{
    if (parameters && extra)
        return CUDA_ERROR_INVALID_VALUE;
    if (extra)
        return copy_packed(function, extra, arguments);
    if (function->parameter_count && parameters == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; i < function->parameter_count; i++) {
        if (parameters[i] == NULL)
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(arguments + function->parameters[i].offset, parameters[i], function->parameters[i].bytes);
    }
    return CUDA_SUCCESS;
}

static void say_once(const struct function *function)
{
    static atomic_flag is_logged = ATOMIC_FLAG_INIT;
    if (log_is_on() && !atomic_flag_test_and_set(&is_logged))
        log_line("event=launch_not_executed kernel=%s note=\"compiled GPU code is timed, not executed\"",
                 function->name);
}

unsigned char *work_launch_arguments(struct work_item *work)
{
    return ((struct launch *)work->payload)->arguments;
}

static void read_priority(const CUlaunchConfig *config, struct launch *own)
{
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
            own->has_priority = 1;
            own->priority = config->attrs[i].value.priority;
        }
}

CUresult work_of_launch(const CUlaunchConfig *config, struct function *function, void **parameters, void **extra,
                        int is_cooperative, unsigned device, struct work_item **made)
{
    CUresult result = check_geometry(config, function, is_cooperative);
    if (result)
        return result;
    struct work_item *work = work_new(run_launch, sizeof(struct launch) + function->parameter_bytes);
    if (work == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct launch *own = (struct launch *)work->payload;
    read_priority(config, own);
    work->pace = WORK_ON_ENGINE;
    own->builtin = function->builtin;
    own->argument_bytes = function->parameter_bytes;
    own->nanoseconds = driver.attachment.machine->launch_nanoseconds;
    own->blocks = (uint64_t)config->gridDimX * config->gridDimY * config->gridDimZ;
    own->block_threads = config->blockDimX * config->blockDimY * config->blockDimZ;
    own->shared_bytes = config->sharedMemBytes;
    result = copy_arguments(function, parameters, extra, own->arguments);
    if (result == CUDA_SUCCESS && own->builtin) {
        uint64_t asked = own->builtin->nanoseconds(own->arguments);
        own->nanoseconds = asked ? asked : own->nanoseconds;
        if (own->builtin->check(own->arguments, device) != 0)
            result = CUDA_ERROR_INVALID_VALUE;
    } else if (result == CUDA_SUCCESS) {
        say_once(function);
    }
    if (result)
        work_drop(work);
    else
        *made = work;
    return result;
}

static CUresult launch(const CUlaunchConfig *config, CUfunction handle, void **parameters, void **extra,
                       int is_cooperative)
{
    struct stream *stream;
    struct context *context;
    struct work_item *work;
    CUresult result = stream_resolve(config->hStream, &stream, &context);
    if (result)
        return result;
    struct function *function = function_of(handle);
    if (function == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (capture_takes(stream, &result))
        return captures->launch(stream, config, handle, parameters, extra, is_cooperative);
    result = result ? result : stream_await_room(stream);
    result = result ? result : work_of_launch(config, function, parameters, extra, is_cooperative, context->physical,
                                                 &work);
    return result ? result : stream_enqueue(stream, work);
}

CUresult impl_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                             unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                             unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
    CUlaunchConfig config = {gridDimX,  gridDimY,       gridDimZ, blockDimX, blockDimY,
                             blockDimZ, sharedMemBytes, hStream,  NULL,      0};
    return launch(&config, f, kernelParams, extra, 0);
}

CUresult impl_cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                        void **kernelParams)
{
    CUlaunchConfig config = {gridDimX,  gridDimY,       gridDimZ, blockDimX, blockDimY,
                             blockDimZ, sharedMemBytes, hStream,  NULL,      0};
    return launch(&config, f, kernelParams, NULL, 1);
}

/* Attributes that only advise are accepted; those that a program would see missing are not. */
static CUresult read_attributes(const CUlaunchConfig *config, int *is_cooperative)
{
    *is_cooperative = 0;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];
        switch ((int)attribute->id) {
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
            *is_cooperative |= attribute->value.cooperative;
            break;
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
            if (attribute->value.clusterDim.x * attribute->value.clusterDim.y * attribute->value.clusterDim.z > 1)
                return CUDA_ERROR_NOT_SUPPORTED;
            break;
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
            break;
        default:
            return CUDA_ERROR_NOT_SUPPORTED;
        }
    }
    return CUDA_SUCCESS;
}

CUresult impl_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
    int is_cooperative;
    if (config == NULL || (config->numAttrs && config->attrs == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = read_attributes(config, &is_cooperative);
    return result ? result : launch(config, f, kernelParams, extra, is_cooperative);
}
