/* Memory of other processes, by its handles. */
#ifndef SOFTGPU_IPC_MEMORY_H
#define SOFTGPU_IPC_MEMORY_H

#include "driver/contexts.h"

/* The context's imports are no more; their memory goes with its other addresses. */
void ipc_forget_context(const struct context *context);

#endif
