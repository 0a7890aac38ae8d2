/* The launch of CUDA's first releases: block shape, shared memory and arguments are set on the
 * function, call by call, and stay for the next launch. PyCUDA sets the shape before every launch,
 * whichever way it launches. */
#include <stdlib.h>
#include <string.h>

#include "implemented.h"
#include "modules/modules.h"

#define ARGUMENT_BYTES_MAX 4096u

struct prepared_launch {
    unsigned x, y, z, shared_bytes;
    size_t argument_bytes;
    unsigned char arguments[ARGUMENT_BYTES_MAX];
};

/* The launch that was prepared on the function so far; NULL without memory. As on a GPU, two
 * threads that prepare it at once race with each other; only its creation is safe. */
static struct prepared_launch *prepared(struct function *function)
{
    struct prepared_launch *found = atomic_load_explicit(&function->prepared, memory_order_acquire);
    if (found)
        return found;
    struct prepared_launch *made = calloc(1, sizeof *made);
    if (made && !atomic_compare_exchange_strong(&function->prepared, &found, made)) {
        free(made);
        return found;
    }
    return made;
}

static CUresult look_up(CUfunction hfunc, struct prepared_launch **out)
{
    struct function *function = function_of(hfunc);
    if (function == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    *out = prepared(function);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult impl_cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z)
{
    struct prepared_launch *launch;
    CUresult result = look_up(hfunc, &launch);
    if (result || x < 1 || y < 1 || z < 1)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    launch->x = (unsigned)x;
    launch->y = (unsigned)y;
    launch->z = (unsigned)z;
    return CUDA_SUCCESS;
}

CUresult impl_cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes)
{
    struct prepared_launch *launch;
    CUresult result = look_up(hfunc, &launch);
    if (result == CUDA_SUCCESS)
        launch->shared_bytes = bytes;
    return result;
}

CUresult impl_cuParamSetSize(CUfunction hfunc, unsigned int numbytes)
{
    struct prepared_launch *launch;
    CUresult result = look_up(hfunc, &launch);
    if (result || numbytes > ARGUMENT_BYTES_MAX)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    launch->argument_bytes = numbytes;
    return CUDA_SUCCESS;
}

CUresult impl_cuParamSetv(CUfunction hfunc, int offset, void *ptr, unsigned int numbytes)
{
    struct prepared_launch *launch;
    CUresult result = look_up(hfunc, &launch);
    if (result)
        return result;
    if (ptr == NULL || offset < 0 || (unsigned)offset > ARGUMENT_BYTES_MAX ||
        numbytes > ARGUMENT_BYTES_MAX - (unsigned)offset)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(launch->arguments + offset, ptr, numbytes);
    return CUDA_SUCCESS;
}

CUresult impl_cuParamSeti(CUfunction hfunc, int offset, unsigned int value)
{
    return impl_cuParamSetv(hfunc, offset, &value, sizeof value);
}

CUresult impl_cuParamSetf(CUfunction hfunc, int offset, float value)
{
    return impl_cuParamSetv(hfunc, offset, &value, sizeof value);
}

CUresult impl_cuLaunchGridAsync(CUfunction hfunc, int grid_width, int grid_height, CUstream hStream)
{
    struct prepared_launch *launch;
    CUresult result = look_up(hfunc, &launch);
    if (result || grid_width < 1 || grid_height < 1)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, launch->arguments, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &launch->argument_bytes, CU_LAUNCH_PARAM_END};
    return impl_cuLaunchKernel(hfunc, (unsigned)grid_width, (unsigned)grid_height, 1, launch->x, launch->y, launch->z,
                               launch->shared_bytes, hStream, NULL, extra);
}

CUresult impl_cuLaunchGrid(CUfunction hfunc, int grid_width, int grid_height)
{
    return impl_cuLaunchGridAsync(hfunc, grid_width, grid_height, NULL);
}

CUresult impl_cuLaunch(CUfunction hfunc)
{
    return impl_cuLaunchGridAsync(hfunc, 1, 1, NULL);
}
