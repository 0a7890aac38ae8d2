/* Names and texts of error codes, and which functions answer before cuInit. */
#include "check.h"

#define EXPECT_NAME(code)                                                                  \
    do {                                                                                   \
        const char *name = NULL, *text = NULL;                                             \
        EXPECT_OK(cuGetErrorName(code, &name));                                            \
        EXPECT(name != NULL && strcmp(name, #code) == 0);                                  \
        EXPECT_OK(cuGetErrorString(code, &text));                                          \
        EXPECT(text != NULL && *text != '\0');                                             \
    } while (0)

TEST(codes_have_the_names_of_the_header)
{
    EXPECT_NAME(CUDA_SUCCESS);
    EXPECT_NAME(CUDA_ERROR_INVALID_VALUE);
    EXPECT_NAME(CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_NAME(CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_NAME(CUDA_ERROR_PROFILER_ALREADY_STARTED);
    EXPECT_NAME(CUDA_ERROR_NO_DEVICE);
    EXPECT_NAME(CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_NAME(CUDA_ERROR_ARRAY_IS_MAPPED);
    EXPECT_NAME(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    EXPECT_NAME(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND);
    EXPECT_NAME(CUDA_ERROR_INVALID_HANDLE);
    EXPECT_NAME(CUDA_ERROR_NOT_READY);
    EXPECT_NAME(CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_NAME(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE);
    EXPECT_NAME(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_NAME(CUDA_ERROR_MPS_CONNECTION_FAILED);
    EXPECT_NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_NAME(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    EXPECT_NAME(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EXPECT_NAME(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    EXPECT_NAME(CUDA_ERROR_UNKNOWN);
}

TEST(a_number_that_is_no_code_is_an_invalid_value)
{
    const char *text = "before";
    EXPECT_CODE(cuGetErrorName((CUresult)4242, &text), CUDA_ERROR_INVALID_VALUE);
    EXPECT(text == NULL);
    text = "before";
    EXPECT_CODE(cuGetErrorString((CUresult)4242, &text), CUDA_ERROR_INVALID_VALUE);
    EXPECT(text == NULL);
}

TEST(before_initialisation_everything_else_says_so)
{
    CUdevice device;
    CUcontext context;
    CUdeviceptr pointer;
    int count, version = 0;
    EXPECT_OK(cuDriverGetVersion(&version));
    EXPECT(version >= 12000);
    EXPECT_CODE(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_CODE(cuDeviceGet(&device, 0), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_CODE(cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_CODE(cuMemAlloc(&pointer, 4), CUDA_ERROR_NOT_INITIALIZED);
}

TEST(initialisation_takes_no_flags)
{
    EXPECT_CODE(cuInit(1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuInit(0));
    EXPECT_OK(cuInit(0));
}
