#include "strict.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "log.h"

static atomic_int is_on;

void strict_begin(void)
{
    atomic_store(&is_on, 1);
}

void strict_on_dead_context(const void *context)
{
    if (context == NULL || !atomic_load_explicit(&is_on, memory_order_relaxed))
        return;
    log_failure("event=strict reason=\"a context is named that has ended\" context=%p", context);
    abort();
}
