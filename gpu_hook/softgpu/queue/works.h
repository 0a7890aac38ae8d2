/* Works made ahead of their stream: what a call would put there, and what a graph's node keeps as its template. */
#ifndef SOFTGPU_WORKS_H
#define SOFTGPU_WORKS_H

#include "queue/streams.h"

struct work *work_of_host_call(CUhostFn function, void *data);
/* The same again; NULL without memory. */
struct work *work_again(const struct work *work);
/* A mark that takes no time. */
struct work *work_of_nothing(void);

#endif
