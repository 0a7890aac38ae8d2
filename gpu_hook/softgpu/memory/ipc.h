/* Memory and events of other processes, by their handles. */
#ifndef SOFTGPU_IPC_H
#define SOFTGPU_IPC_H

#include "driver/contexts.h"

/* A descriptor of this process for one of that whose joining it was; -1 when it is gone, or may not be had. */
int ipc_open_descriptor(uint64_t joined, int descriptor);
/* The context's imports are no more; their memory goes with its other addresses. */
void ipc_forget_context(const struct context *context);

#endif
