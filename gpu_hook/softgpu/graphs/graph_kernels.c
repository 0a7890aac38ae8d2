/* Kernel nodes: their arguments, which lie in the work item's own copy, and whether they are
 * cooperative. */
#include <stdlib.h>
#include <string.h>

#include "graphs/graph_state.h"
#include "driver/handles.h"
#include "implemented.h"
#include "modules/modules_state.h"
#include "queue/work_items.h"
#include "launch/launch.h"

/* Point the node's parameters at the copied arguments, in the form in which they came. */
static CUresult point_at_arguments(struct node *node, const struct function *function, int is_packed)
{
    CUDA_KERNEL_NODE_PARAMS_v3 *params = &node->params.kernel;
    struct kernel_state *kernel = node->kernel;
    unsigned char *arguments = work_launch_arguments(node->work);
    params->kernelParams = NULL;
    params->extra = NULL;
    if (is_packed) {
        kernel->packed_bytes = function->parameter_bytes;
        void *extra[5] = {CU_LAUNCH_PARAM_BUFFER_POINTER, arguments, CU_LAUNCH_PARAM_BUFFER_SIZE,
                          &kernel->packed_bytes, CU_LAUNCH_PARAM_END};
        memcpy(kernel->extra, extra, sizeof extra);
        params->extra = kernel->extra;
        return CUDA_SUCCESS;
    }
    kernel->pointers = calloc(function->parameter_count + 1, sizeof *kernel->pointers);
    if (kernel->pointers == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < function->parameter_count; i++)
        kernel->pointers[i] = arguments + function->parameters[i].offset;
    params->kernelParams = kernel->pointers;
    return CUDA_SUCCESS;
}

static CUresult find_context(struct node *node, const struct function *function)
{
    CUcontext asked = node->params.kernel.ctx;
    node->context = function->module->context;
    if (node->context)
        return CUDA_SUCCESS;
    if (asked && !handles_has(HANDLE_CONTEXT, asked))
        return CUDA_ERROR_INVALID_CONTEXT;
    node->context = (struct context *)asked;
    return asked ? CUDA_SUCCESS : context_current(&node->context);
}

CUresult kernel_fill(struct node *node, const CUDA_KERNEL_NODE_PARAMS_v3 *given, int is_cooperative)
{
    const void *handle = given->func ? (const void *)given->func : (const void *)given->kern;
    struct function *function = function_of(handle);
    if (function == NULL)
        return handle ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    if (is_cooperative && given->extra)
        return CUDA_ERROR_INVALID_VALUE;
    CUlaunchConfig config = {given->gridDimX,  given->gridDimY,  given->gridDimZ,       given->blockDimX,
                             given->blockDimY, given->blockDimZ, given->sharedMemBytes, NULL, NULL, 0};
    struct kernel_state *kernel = calloc(1, sizeof *kernel);
    if (kernel == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    kernel->is_cooperative = is_cooperative;
    struct work_item *work = NULL;
    node->params.kernel = *given;
    CUresult result = find_context(node, function);
    result = result ? result
                    : work_of_launch(&config, function, given->kernelParams, given->extra, is_cooperative,
                                     node->context->physical, &work);
    if (result == CUDA_SUCCESS) {
        node->kernel = kernel;
        node->work = work;
        result = point_at_arguments(node, function, given->extra != NULL);
    }
    if (result) {
        if (work)
            work_drop(work);
        free(kernel);
        node->kernel = NULL;
        node->work = NULL;
    }
    return result;
}

/* The copy shares the work item, and so the arguments; the pointers to them are its own. */
CUresult kernel_copy(struct node *to, const struct node *from)
{
    const struct kernel_state *source = from->kernel;
    struct kernel_state *kernel = malloc(sizeof *kernel);
    if (kernel == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *kernel = *source;
    kernel->pointers = NULL;
    to->kernel = kernel;
    if (source->pointers) {
        size_t count = 0;
        while (source->pointers[count])
            count++;
        kernel->pointers = malloc((count + 1) * sizeof *kernel->pointers);
        if (kernel->pointers == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(kernel->pointers, source->pointers, (count + 1) * sizeof *kernel->pointers);
        to->params.kernel.kernelParams = kernel->pointers;
    } else {
        kernel->extra[3] = &kernel->packed_bytes;
        to->params.kernel.extra = kernel->extra;
    }
    return CUDA_SUCCESS;
}

void kernel_free(struct node *node)
{
    if (node->kernel)
        free(node->kernel->pointers);
    free(node->kernel);
}
