/* Names and texts of error codes. */
#include <stddef.h>

#include "driver/error_texts.h"
#include "implemented.h"

struct description {
    CUresult code;
    const char *name, *text;
};

static const struct description *describe(CUresult error)
{
#define ROW(code, text) {code, #code, text},
    static const struct description table[] = {ERROR_TEXTS(ROW)};
#undef ROW
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].code == error)
            return &table[i];
    return NULL;
}

CUresult impl_cuGetErrorName(CUresult error, const char **pStr)
{
    const struct description *found = describe(error);
    if (pStr == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pStr = found ? found->name : NULL;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuGetErrorString(CUresult error, const char **pStr)
{
    const struct description *found = describe(error);
    if (pStr == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pStr = found ? found->text : NULL;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
