/* Modules and libraries: loading, functions and globals by name, what a function says of itself, and their errors. */
#include "check.h"

static const char program[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
                              ".visible .global .align 8 .b8 table[4096];\n"
                              ".visible .entry takes(.param .u64 to, .param .u32 value, .param .u64 count)\n"
                              "{\nret;\n}\n"
                              ".visible .entry empty()\n{\nret;\n}\n";

static CUmodule load(void)
{
    CUmodule module;
    EXPECT_OK(cuModuleLoadData(&module, program));
    return module;
}

TEST(functions_are_found_by_name)
{
    CUfunction function;
    check_start();
    CUmodule module = load();
    EXPECT_OK(cuModuleGetFunction(&function, module, "takes"));
    EXPECT_OK(cuModuleGetFunction(&function, module, "empty"));
    EXPECT_CODE(cuModuleGetFunction(&function, module, "missing"), CUDA_ERROR_NOT_FOUND);
    EXPECT_CODE(cuModuleGetFunction(NULL, module, "takes"), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuModuleGetFunction(&function, module, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuModuleUnload(module));
}

TEST(globals_are_found_by_name_and_hold_their_bytes)
{
    CUdeviceptr pointer, again;
    size_t bytes = 0;
    uint32_t word = 0;
    check_start();
    CUmodule module = load();
    EXPECT_OK(cuModuleGetGlobal(&pointer, &bytes, module, "table"));
    EXPECT_EQUAL(bytes, 4096);
    EXPECT_OK(cuMemsetD32(pointer, 5, 1024));
    EXPECT_OK(cuModuleGetGlobal(&again, NULL, module, "table"));
    EXPECT(again == pointer);
    EXPECT_OK(cuMemcpyDtoH(&word, pointer + 4092, 4));
    EXPECT_EQUAL(word, 5);
    EXPECT_CODE(cuModuleGetGlobal(&pointer, &bytes, module, "missing"), CUDA_ERROR_NOT_FOUND);
    EXPECT_OK(cuModuleUnload(module));
}

TEST(a_function_tells_its_name_its_module_and_its_parameters)
{
    CUfunction function;
    CUmodule found = NULL;
    const char *name = NULL;
    size_t offset, bytes;
    int threads = 0;
    check_start();
    CUmodule module = load();
    EXPECT_OK(cuModuleGetFunction(&function, module, "takes"));
    EXPECT_OK(cuFuncGetModule(&found, function));
    EXPECT(found == module);
    EXPECT_OK(cuFuncGetName(&name, function));
    EXPECT(strcmp(name, "takes") == 0);
    EXPECT_OK(cuFuncGetParamInfo(function, 1, &offset, &bytes));
    EXPECT(offset == 8 && bytes == 4);
    EXPECT_OK(cuFuncGetParamInfo(function, 2, &offset, &bytes));
    EXPECT(offset == 16 && bytes == 8);
    EXPECT_CODE(cuFuncGetParamInfo(function, 3, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    EXPECT(threads >= 32);
    EXPECT_CODE(cuFuncGetAttribute(&threads, (CUfunction_attribute)0x7777, function), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_module_counts_its_functions)
{
    CUfunction functions[2] = {NULL, NULL};
    unsigned count = 0;
    check_start();
    CUmodule module = load();
    EXPECT_OK(cuModuleGetFunctionCount(&count, module));
    EXPECT_EQUAL(count, 2);
    EXPECT_OK(cuModuleEnumerateFunctions(functions, 2, module));
    EXPECT(functions[0] && functions[1] && functions[0] != functions[1]);
}

TEST(what_is_no_image_is_refused)
{
    CUmodule module;
    check_start();
    CUresult result = cuModuleLoadData(&module, "neither text nor binary, but long enough to be looked at");
    EXPECT(result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_INVALID_PTX);
    EXPECT_CODE(cuModuleLoad(&module, "/no/such/module.cubin"), CUDA_ERROR_FILE_NOT_FOUND);
    EXPECT_CODE(cuModuleLoadData(&module, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuModuleLoadData(NULL, program), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_module_needs_a_context)
{
    CUmodule module;
    EXPECT_OK(cuInit(0));
    EXPECT_CODE(cuModuleLoadData(&module, program), CUDA_ERROR_INVALID_CONTEXT);
}

TEST(a_library_serves_every_context)
{
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    CUlibrary found = NULL;
    unsigned count = 0;
    EXPECT_OK(cuInit(0));
    EXPECT_OK(cuLibraryLoadData(&library, program, NULL, NULL, 0, NULL, NULL, 0));
    EXPECT_OK(cuLibraryGetKernel(&kernel, library, "empty"));
    EXPECT_CODE(cuLibraryGetKernel(&kernel, library, "missing"), CUDA_ERROR_NOT_FOUND);
    EXPECT_OK(cuLibraryGetKernelCount(&count, library));
    EXPECT_EQUAL(count, 2);
    check_start();
    EXPECT_OK(cuLibraryGetKernel(&kernel, library, "empty"));
    EXPECT_OK(cuKernelGetLibrary(&found, kernel));
    EXPECT(found == library);
    EXPECT_OK(cuKernelGetFunction(&function, kernel));
    EXPECT_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuLibraryUnload(library));
}
