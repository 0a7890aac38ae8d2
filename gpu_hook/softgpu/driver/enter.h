/* The entry of the library: every exported function calls enter() first. Off the fast path it
 * checks that the driver is initialised, writes the call log, and injects faults. */
#ifndef SOFTGPU_ENTER_H
#define SOFTGPU_ENTER_H

#include <stdatomic.h>
#include <stdint.h>

#include <cuda.h>

enum enter_watch {
    WATCH_BEFORE_INIT = 1, /* calls are refused, and the environment may not have been read */
    WATCH_LOG = 2,
    WATCH_FAULTS = 4,
    WATCH_TORN_DOWN = 16, /* the process exits */
    WATCH_FORKED = 8, /* as with CUDA, a child of an initialised process cannot use the driver */
};

struct enter_point {
    const char *name;
    _Atomic unsigned long calls; /* counted while faults are on */
};

extern struct enter_point enter_points[];
extern const int enter_point_count;
extern atomic_int enter_watch;
/* The state that a checkpointing process wrote for this one; while it is not 0, calls wait. */
extern _Atomic uint32_t *_Atomic enter_pause;
/* Set while a _ptsz or _ptds variant runs: stream 0 means the thread's own. */
extern __thread int enter_per_thread __attribute__((tls_model("initial-exec")));

CUresult enter_slow(int index);
CUresult enter_unsupported(int index);
void enter_read_environment(void); /* once; log and fault list */
void enter_initialised(void);
void enter_pause_on(_Atomic uint32_t *word);
void enter_forked(void);
/* From now on `answer` decides what a call returns: the driver's teardown began. */
void enter_torn_down(CUresult (*answer)(const char *function));
/* Sets the list of faults: NAME:NTH=CODE, comma separated. 0, or -1 for a list that cannot be
 * read. */
int enter_set_faults(const char *list);

static inline CUresult enter(int index)
{
    const _Atomic uint32_t *pause = atomic_load_explicit(&enter_pause, memory_order_relaxed);
    if (__builtin_expect((uint32_t)atomic_load_explicit(&enter_watch, memory_order_relaxed) |
                             atomic_load_explicit(pause, memory_order_relaxed), 0))
        return enter_slow(index);
    return CUDA_SUCCESS;
}

#endif
