/* The life of work items outside of queues. */
#include "queue/work_items.h"

#include <stdlib.h>
#include <string.h>

struct work_item *work_new(CUresult (*run)(struct work_item *, uint64_t *), size_t payload_bytes)
{
    struct work_item *work = calloc(1, sizeof *work + payload_bytes);
    if (work) {
        work->run = run;
        work->payload_bytes = (uint32_t)payload_bytes;
        atomic_init(&work->references, 1);
    }
    return work;
}

struct work_item *work_again(const struct work_item *work)
{
    struct work_item *again = work_new(work->run, work->payload_bytes);
    if (again) {
        memcpy(again->payload, work->payload, work->payload_bytes);
        again->runs_after_failure = work->runs_after_failure;
        again->pace = work->pace;
    }
    return again;
}

static CUresult pass(struct work_item *work, uint64_t *clock)
{
    return CUDA_SUCCESS;
}

struct work_item *work_of_nothing(void)
{
    struct work_item *work = work_new(pass, 0);
    if (work)
        work->pace = WORK_AT_ONCE;
    return work;
}

void work_hold(struct work_item *work)
{
    atomic_fetch_add_explicit(&work->references, 1, memory_order_relaxed);
}

void work_forget_needs(struct work_item *work)
{
    while (work->dependencies) {
        struct dependency *dependency = work->dependencies;
        work->dependencies = dependency->next;
        work_drop(dependency->work);
        free(dependency);
    }
}

void work_drop(struct work_item *work)
{
    if (work && atomic_fetch_sub_explicit(&work->references, 1, memory_order_acq_rel) == 1) {
        work_forget_needs(work);
        free(work);
    }
}

int work_needs(struct work_item *work, struct work_item *earlier)
{
    struct dependency *dependency = malloc(sizeof *dependency);
    if (dependency == NULL)
        return -1;
    work_hold(earlier);
    *dependency = (struct dependency){earlier, work->dependencies};
    work->dependencies = dependency;
    return 0;
}
