/* Works made ahead of their stream: what a call would put there, and what a graph's node keeps as its template. */
#ifndef SOFTGPU_WORKS_H
#define SOFTGPU_WORKS_H

#include "modules/modules.h"
#include "queue/streams.h"

/* Checks as the call does; the stream of `config` says nothing here. */
CUresult work_of_launch(const CUlaunchConfig *config, struct function *function, void **parameters, void **extra,
                        int is_cooperative, unsigned device, struct work **work);
/* The copied arguments, as the function's parameters lie. */
unsigned char *work_launch_arguments(struct work *work);
/* A copy of nothing is a NULL work. */
CUresult work_of_copy(const CUDA_MEMCPY3D *copy, unsigned device, struct work **work);
struct work *work_of_host_call(CUhostFn function, void *data);
/* The same again; NULL without memory. */
struct work *work_again(const struct work *work);
/* A mark that takes no time. */
struct work *work_of_nothing(void);

#endif
