/* Memory of other processes, by its handles. */
#ifndef SOFTGPU_IPC_MEMORY_H
#define SOFTGPU_IPC_MEMORY_H

#include "driver/contexts.h"

/* Forgets the imports of a context that ends; their memory goes with its other addresses. */
void ipc_forget_context(const struct context *context);

#endif
