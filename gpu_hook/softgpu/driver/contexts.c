/* Each thread's stack of current contexts, and whether a context can be used. A destroyed context
 * may still be on a thread's stack: every use checks that it is live. */
#include "driver/contexts.h"

#include "driver/driver.h"
#include "driver/handles.h"
#include "driver/strict.h"
#include "implemented.h"

#define STACK_MAX 64

static __thread struct {
    struct context *entries[STACK_MAX];
    int depth;
} stack;

static _Atomic unsigned long long last_id;

unsigned long long context_new_id(void)
{
    return 1 + atomic_fetch_add(&last_id, 1);
}

/* Of a live context. */
static CUresult check_health(struct context *context)
{
    int sticky = atomic_load_explicit(&context->sticky, memory_order_relaxed);
    if (sticky)
        return (CUresult)sticky;
    return driver_is_lost(context->device) ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_SUCCESS;
}

int context_is_live(const struct context *context)
{
    int is_live = handles_has(HANDLE_CONTEXT, context);
    if (!is_live)
        strict_on_dead_context(context);
    return is_live;
}

CUresult context_check(struct context *context)
{
    if (!context_is_live(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context->behind && atomic_load_explicit(&context->behind->is_closed, memory_order_acquire))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return check_health(context->behind ? context->behind : context);
}

void context_put_before(struct context *face, struct context *primary, struct green *green)
{
    face->device = primary->device;
    face->physical = primary->physical;
    face->is_primary = 1;
    face->id = context_new_id();
    face->behind = primary;
    face->green = green;
}

struct context *context_current_or_null(void)
{
    return stack.depth ? stack.entries[stack.depth - 1] : NULL;
}

CUresult context_current(struct context **context)
{
    *context = context_current_or_null();
    if (*context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    int is_closed = atomic_load_explicit(&(*context)->is_closed, memory_order_acquire);
    if ((*context)->behind) {
        *context = (*context)->behind;
        is_closed |= atomic_load_explicit(&(*context)->is_closed, memory_order_acquire);
    }
    return is_closed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : check_health(*context);
}

void context_fail(struct context *context, CUresult error)
{
    int none = 0;
    atomic_compare_exchange_strong(&context->sticky, &none, (int)error);
}

int contexts_is_stack_full(void)
{
    return stack.depth == STACK_MAX;
}

CUresult context_push(struct context *context)
{
    if (contexts_is_stack_full())
        return CUDA_ERROR_OUT_OF_MEMORY;
    stack.entries[stack.depth++] = context;
    return CUDA_SUCCESS;
}

void context_pop_if_current(const struct context *context)
{
    if (context_current_or_null() == context)
        stack.depth--;
}

CUresult impl_cuCtxPushCurrent_v2(CUcontext ctx)
{
    return context_is_live((struct context *)ctx) ? context_push((struct context *)ctx) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult impl_cuCtxPopCurrent_v2(CUcontext *pctx)
{
    if (stack.depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack.depth--;
    if (pctx)
        *pctx = (CUcontext)stack.entries[stack.depth];
    return CUDA_SUCCESS;
}

CUresult impl_cuCtxSetCurrent(CUcontext ctx)
{
    if (ctx && !context_is_live((struct context *)ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (ctx == NULL) {
        stack.depth -= stack.depth > 0;
        return CUDA_SUCCESS;
    }
    stack.depth += stack.depth == 0;
    stack.entries[stack.depth - 1] = (struct context *)ctx;
    return CUDA_SUCCESS;
}

CUresult impl_cuCtxGetCurrent(CUcontext *pctx)
{
    if (pctx == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pctx = (CUcontext)context_current_or_null();
    return CUDA_SUCCESS;
}
