/* Launches as work that is made ahead of its stream. */
#ifndef SOFTGPU_LAUNCH_H
#define SOFTGPU_LAUNCH_H

#include <cuda.h>

struct function;
struct work_item;

/* Checks as the call does; the stream of `config` says nothing here. */
CUresult work_of_launch(const CUlaunchConfig *config, struct function *function, void **parameters,
                        void **extra, int is_cooperative, unsigned device, struct work_item **work);
/* The copied arguments, as the function's parameters lie. */
unsigned char *work_launch_arguments(struct work_item *work);

#endif
