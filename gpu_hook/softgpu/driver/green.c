/* Green contexts, as streams see them. */
#include "driver/green.h"

CUresult green_check(const struct green *green)
{
    int is_gone = green && atomic_load_explicit(&green->is_destroyed, memory_order_acquire);
    return is_gone ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

struct green *green_of_context(const struct context *context)
{
    return context ? context->green : NULL;
}
