/* Work items made ahead of their stream: what a call would put there, and the template that a node
 * of a graph keeps. */
#ifndef SOFTGPU_WORK_ITEMS_H
#define SOFTGPU_WORK_ITEMS_H

#include "queue/streams.h"

struct work_item *work_of_host_call(CUhostFn function, void *data);
/* A copy of a work item; NULL without memory. */
struct work_item *work_again(const struct work_item *work);
/* A mark in a stream, which takes no time. */
struct work_item *work_of_nothing(void);

#endif
