/* Contexts, and each thread's stack of current ones. */
#ifndef SOFTGPU_CONTEXTS_H
#define SOFTGPU_CONTEXTS_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>

struct green;
struct stream;

#define CONTEXT_PEERS_MAX 16

/* A CUcontext is a pointer to this. */
struct context {
    CUdevice device;   /* visible ordinal */
    unsigned physical; /* index in the machine */
    unsigned flags;
    int is_primary;
    atomic_uint attachments; /* references after the first; only cuCtxAttach makes some */
    unsigned long long id;
    atomic_int is_closed;    /* set while threads still have it on their stacks */
    atomic_int sticky;       /* a CUresult: the error that made the context unusable; 0: none */
    struct stream *streams;  /* all of them; under the streams' mutex */
    struct stream *legacy;   /* the legacy default stream */
    size_t limits[CU_LIMIT_MAX];
    /* contexts whose memory this one may use; NULL: a free place. Guarded by the peers' mutex */
    struct context *peers[CONTEXT_PEERS_MAX];
    /* for the handle of a green context: the primary context that it stands for; else NULL */
    struct context *behind;
    struct green *green;
    atomic_uint resources; /* that it was charged for (resources.h) */
};

/* The calling thread's context, if it can be used: CUDA_SUCCESS, INVALID_CONTEXT, a sticky error,
 * or DEVICE_UNAVAILABLE when the device was lost. */
CUresult context_current(struct context **context);
struct context *context_current_or_null(void);
/* The same checks for a context that came as an argument. */
CUresult context_check(struct context *context);
/* Whether the handle names a context that has not ended. */
int context_is_live(const struct context *context);
void context_fail(struct context *context, CUresult error);
/* Makes `face` stand for the primary context, for a green context. */
void context_put_before(struct context *face, struct context *primary, struct green *green);
unsigned long long context_new_id(void);
int contexts_is_stack_full(void); /* the calling thread's */
CUresult context_push(struct context *context); /* OUT_OF_MEMORY on a full stack */
void context_pop_if_current(const struct context *context);

#endif
