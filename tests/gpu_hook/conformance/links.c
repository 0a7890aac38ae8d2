/* The linker: several inputs in one module, and its errors. */
#include "check.h"

static char fill_one[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
                         ".visible .global .align 4 .u32 shared_word;\n"
                         ".visible .entry first(.param .u64 to, .param .u32 value)\n{\nret;\n}\n";
static char fill_two[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
                         ".extern .global .align 4 .u32 shared_word;\n"
                         ".visible .entry second(.param .u32 value)\n{\nret;\n}\n";

static CUlinkState new_link(void)
{
    CUlinkState link;
    EXPECT_OK(cuLinkCreate(0, NULL, NULL, &link));
    return link;
}

TEST(a_module_has_the_names_of_all_its_inputs)
{
    CUmodule module;
    CUfunction function;
    CUdeviceptr pointer;
    void *image;
    size_t bytes;
    check_start();
    CUlinkState link = new_link();
    EXPECT_OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, fill_one, sizeof fill_one, "one", 0, NULL, NULL));
    EXPECT_OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, fill_two, sizeof fill_two, "two", 0, NULL, NULL));
    EXPECT_OK(cuLinkComplete(link, &image, &bytes));
    EXPECT(image != NULL && bytes > 0);
    EXPECT_OK(cuModuleLoadData(&module, image));
    EXPECT_OK(cuLinkDestroy(link));
    EXPECT_OK(cuModuleGetFunction(&function, module, "first"));
    EXPECT_OK(cuModuleGetFunction(&function, module, "second"));
    EXPECT_CODE(cuModuleGetFunction(&function, module, "third"), CUDA_ERROR_NOT_FOUND);
    EXPECT_OK(cuModuleGetGlobal(&pointer, &bytes, module, "shared_word"));
    EXPECT_EQUAL(bytes, 4);
}

TEST(linked_functions_keep_their_parameters)
{
    CUmodule module;
    CUfunction function;
    void *image;
    size_t offset = 99, bytes = 0;
    check_start();
    CUlinkState link = new_link();
    EXPECT_OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, fill_one, sizeof fill_one, "one", 0, NULL, NULL));
    EXPECT_OK(cuLinkComplete(link, &image, NULL));
    EXPECT_OK(cuModuleLoadData(&module, image));
    EXPECT_OK(cuModuleGetFunction(&function, module, "first"));
    EXPECT_OK(cuFuncGetParamInfo(function, 1, &offset, &bytes));
    EXPECT(offset == 8 && bytes == 4);
    EXPECT_CODE(cuFuncGetParamInfo(function, 2, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
}

TEST(an_input_may_be_a_file)
{
    CUmodule module;
    CUfunction function;
    void *image;
    check_start();
    CUlinkState link = new_link();
    EXPECT_OK(cuLinkAddFile(link, CU_JIT_INPUT_PTX, getenv("ALIQUOT_BUILTINS"), 0, NULL, NULL));
    EXPECT_OK(cuLinkComplete(link, &image, NULL));
    EXPECT_OK(cuModuleLoadData(&module, image));
    EXPECT_OK(cuModuleGetFunction(&function, module, "aliquot_fill"));
    EXPECT_CODE(cuLinkAddFile(new_link(), CU_JIT_INPUT_PTX, "/no/such/file.ptx", 0, NULL, NULL),
                CUDA_ERROR_FILE_NOT_FOUND);
}

TEST(text_that_is_no_ptx_is_refused)
{
    char text[] = "this is no program";
    check_start();
    CUresult result = cuLinkAddData(new_link(), CU_JIT_INPUT_PTX, text, sizeof text, "text", 0, NULL, NULL);
    EXPECT(result == CUDA_ERROR_INVALID_PTX || result == CUDA_ERROR_INVALID_IMAGE);
}

TEST(a_linker_needs_a_context)
{
    CUlinkState link;
    EXPECT_OK(cuInit(0));
    EXPECT_CODE(cuLinkCreate(0, NULL, NULL, &link), CUDA_ERROR_INVALID_CONTEXT);
}
