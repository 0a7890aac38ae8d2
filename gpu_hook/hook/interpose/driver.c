#include "interpose/driver.h"

#include "interpose/entry_points.h"
#include "base/settings.h"
#include "interpose/unknown_functions.h"

static CUresult answer_absent(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult answer_unavailable(void)
{
    return CUDA_ERROR_STUB_LIBRARY;
}

struct entry_library entry_library(void)
{
    return (struct entry_library){
        .path = settings()->real_cuda,
        .variable = "ALIQUOT_REAL_CUDA",
        .absent = (void *)answer_absent,
        .unavailable = (void *)answer_unavailable,
        .unknown = unknown_functions_gate_export,
    };
}
