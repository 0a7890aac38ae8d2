/* The module and library functions of the driver API. */
#include "driver/driver.h"
#include "driver/handles.h"
#include "implemented.h"
#include "modules/jit_options.h"
#include "modules/modules_state.h"
#include "queue/streams.h"

CUresult impl_cuModuleLoadData(CUmodule *module, const void *image)
{
    struct context *context;
    CUresult result = context_current(&context);
    if (result || module == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    return module_load(image, IMAGE_BYTES_UNKNOWN, context, (struct module **)module);
}

CUresult impl_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions, CUjit_option *options,
                                 void **optionValues)
{
    jit_options_say_nothing(numOptions, options, optionValues);
    return impl_cuModuleLoadData(module, image);
}

CUresult impl_cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
    return impl_cuModuleLoadData(module, fatCubin);
}

CUresult impl_cuModuleLoad(CUmodule *module, const char *fname)
{
    struct context *context;
    CUresult result = context_current(&context);
    if (result || module == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    return module_load_file(fname, context, (struct module **)module);
}

CUresult impl_cuModuleUnload(CUmodule hmod)
{
    struct module *module = (struct module *)hmod;
    if (!handles_remove(HANDLE_MODULE, module))
        return CUDA_ERROR_INVALID_HANDLE;
    streams_drain(module->context);
    module_unload(module);
    return CUDA_SUCCESS;
}

/* A library's module is the library itself. */
static struct module *module_of(const void *handle)
{
    return handles_has(HANDLE_MODULE, handle) || handles_has(HANDLE_LIBRARY, handle) ? (struct module *)handle : NULL;
}

CUresult impl_cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    struct module *module = module_of(hmod);
    if (module == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    return hfunc && name ? module_find(module, name, (struct function **)hfunc) : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuModuleGetFunctionCount(unsigned int *count, CUmodule mod)
{
    struct module *module = module_of(mod);
    if (module == NULL || count == NULL)
        return module ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    *count = module_list(module, NULL, 0);
    return CUDA_SUCCESS;
}

CUresult impl_cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
    struct module *module = module_of(mod);
    if (module == NULL || functions == NULL)
        return module ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    module_list(module, (const void **)functions, numFunctions);
    return CUDA_SUCCESS;
}

CUresult impl_cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
    struct module *module = module_of(hmod);
    if (module == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    return name ? module_global(module, name, dptr, bytes) : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    if (mode == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}

CUresult impl_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                                void **jitOptionsValues, unsigned int numJitOptions, CUlibraryOption *libraryOptions,
                                void **libraryOptionValues, unsigned int numLibraryOptions)
{
    return library ? module_load(code, IMAGE_BYTES_UNKNOWN, NULL, (struct module **)library) : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
                                    void **jitOptionsValues, unsigned int numJitOptions,
                                    CUlibraryOption *libraryOptions, void **libraryOptionValues,
                                    unsigned int numLibraryOptions)
{
    return library ? module_load_file(fileName, NULL, (struct module **)library) : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuLibraryUnload(CUlibrary library)
{
    if (!handles_remove(HANDLE_LIBRARY, library))
        return CUDA_ERROR_INVALID_HANDLE;
    struct context *context = context_current_or_null();
    if (handles_has(HANDLE_CONTEXT, context))
        streams_drain(context);
    module_unload((struct module *)library);
    return CUDA_SUCCESS;
}

CUresult impl_cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
    if (!handles_has(HANDLE_LIBRARY, library))
        return CUDA_ERROR_INVALID_HANDLE;
    return pKernel && name ? module_find((struct module *)library, name, (struct function **)pKernel)
                           : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib)
{
    return handles_has(HANDLE_LIBRARY, lib) ? impl_cuModuleGetFunctionCount(count, (CUmodule)lib)
                                            : CUDA_ERROR_INVALID_HANDLE;
}

CUresult impl_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
    return handles_has(HANDLE_LIBRARY, lib)
               ? impl_cuModuleEnumerateFunctions((CUfunction *)kernels, numKernels, (CUmodule)lib)
               : CUDA_ERROR_INVALID_HANDLE;
}

CUresult impl_cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
    if (!handles_has(HANDLE_LIBRARY, library) || pMod == NULL)
        return pMod ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    *pMod = (CUmodule)library;
    return CUDA_SUCCESS;
}

CUresult impl_cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    return handles_has(HANDLE_LIBRARY, library) ? impl_cuModuleGetGlobal_v2(dptr, bytes, (CUmodule)library, name)
                                                : CUDA_ERROR_INVALID_HANDLE;
}
