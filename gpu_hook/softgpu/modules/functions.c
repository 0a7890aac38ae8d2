/* The properties of a CUDA kernel that a program can ask for or set. Registers and code sizes are
 * nominal, for code is not compiled. */
#include "driver/driver.h"
#include "driver/handles.h"
#include "implemented.h"
#include "driver/launch_limits.h"
#include "modules/modules.h"

CUresult impl_cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
    struct function *function = function_of(hfunc);
    if (function == NULL || pi == NULL)
        return pi ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    switch ((int)attrib) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *pi = LIMIT_BLOCK_THREADS;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *pi = LIMIT_REGISTERS;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *pi = MACHINE_CAPABILITY_MAJOR * 10 + MACHINE_CAPABILITY_MINOR;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *pi = function->dynamic_shared_bytes ? function->dynamic_shared_bytes : LIMIT_SHARED_BYTES;
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *pi = function->carveout;
        break;
    default:
        if ((unsigned)attrib >= CU_FUNC_ATTRIBUTE_MAX)
            return CUDA_ERROR_INVALID_VALUE;
        *pi = 0;
    }
    return CUDA_SUCCESS;
}

CUresult impl_cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
    struct function *function = function_of(hfunc);
    if (function == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (attrib == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value >= 0 && value <= LIMIT_SHARED_BYTES_OPTIN)
        function->dynamic_shared_bytes = value;
    else if (attrib == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT && value >= -1 && value <= 100)
        function->carveout = value;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult impl_cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev)
{
    CUresult result = driver_check_device(dev);
    return result ? result : impl_cuFuncGetAttribute(pi, attrib, (CUfunction)kernel);
}

CUresult impl_cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev)
{
    CUresult result = driver_check_device(dev);
    return result ? result : impl_cuFuncSetAttribute((CUfunction)kernel, attrib, val);
}

CUresult impl_cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
    return function_of(hfunc) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult impl_cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
    CUresult result = driver_check_device(dev);
    return result ? result : impl_cuFuncSetCacheConfig((CUfunction)kernel, config);
}

/* One object serves as a kernel and, in every context, as its function. */
CUresult impl_cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
    struct context *context;
    CUresult result = context_current(&context);
    if (result)
        return result;
    if (pFunc == NULL || function_of(kernel) == NULL)
        return pFunc ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    *pFunc = (CUfunction)kernel;
    return CUDA_SUCCESS;
}

CUresult impl_cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel)
{
    struct function *function = function_of(kernel);
    if (pLib == NULL || function == NULL || !handles_has(HANDLE_LIBRARY, function->module))
        return pLib ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    *pLib = (CUlibrary)function->module;
    return CUDA_SUCCESS;
}

CUresult impl_cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
    struct function *function = function_of(hfunc);
    if (hmod == NULL || function == NULL)
        return hmod ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    *hmod = (CUmodule)function->module;
    return CUDA_SUCCESS;
}

CUresult impl_cuFuncGetName(const char **name, CUfunction hfunc)
{
    struct function *function = function_of(hfunc);
    if (name == NULL || function == NULL)
        return name ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    *name = function->name;
    return CUDA_SUCCESS;
}

CUresult impl_cuKernelGetName(const char **name, CUkernel hfunc)
{
    return impl_cuFuncGetName(name, (CUfunction)hfunc);
}

CUresult impl_cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
    struct function *function = function_of(func);
    if (function == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (paramOffset == NULL || paramIndex >= function->parameter_count)
        return CUDA_ERROR_INVALID_VALUE;
    *paramOffset = function->parameters[paramIndex].offset;
    if (paramSize)
        *paramSize = function->parameters[paramIndex].bytes;
    return CUDA_SUCCESS;
}

CUresult impl_cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
    return impl_cuFuncGetParamInfo((CUfunction)kernel, paramIndex, paramOffset, paramSize);
}

CUresult impl_cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    if (state == NULL || function_of(function) == NULL)
        return state ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
}

CUresult impl_cuFuncLoad(CUfunction function)
{
    return function_of(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
