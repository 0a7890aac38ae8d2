/* Entry points of launches. A launch reads the gate once and adds to one counter of its thread. The
 * session's thread sums the counters, so that a launch never takes a lock or the time. */
#ifndef ALIQUOT_LAUNCH_H
#define ALIQUOT_LAUNCH_H

#include "interpose/driver.h"

#include <stdbool.h>

/* Count one more launch of this thread, on its current device. */
void launch_count(void);

/* Launch a graph for a caller that has entered already, and counted the launch (residency.h,
 * guard.h). */
CUresult cuGraphLaunch_entered(CUgraphExec graph, CUstream stream);
CUresult cuGraphLaunch_ptsz_entered(CUgraphExec graph, CUstream stream);

/* Launch a graph where some graph has memory nodes; graph_calls.c defines them. */
CUresult launch_graph(CUgraphExec exec, CUstream stream);
CUresult launch_graph_ptsz(CUgraphExec exec, CUstream stream);

/* Called when this thread's current device may have changed. */
void launch_forget_device(void);

/* Called on the session's thread: write the counts to the page. False: nothing was launched since
 * the last time. */
bool launch_tick(void);

/* Called in the child of a fork. */
void launch_reset(void);

#endif
