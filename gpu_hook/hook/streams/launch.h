/* Entry points of launches: one look at the gate, one counter of this thread. The session's thread adds the counters
 * up, so that a launch never takes a lock or the time. */
#ifndef ALIQUOT_LAUNCH_H
#define ALIQUOT_LAUNCH_H

#include "interpose/driver.h"

#include <stdbool.h>

/* One more launch of this thread, on its current device. */
void launch_count(void);

/* The launch of a graph by who has entered already, and counted it (residency.h, guard.h). */
CUresult cuGraphLaunch_entered(CUgraphExec graph, CUstream stream);
CUresult cuGraphLaunch_ptsz_entered(CUgraphExec graph, CUstream stream);

/* cuGraphLaunch where some graph has memory nodes: graph_calls.c. */
CUresult launch_graph(CUgraphExec exec, CUstream stream);
CUresult launch_graph_ptsz(CUgraphExec exec, CUstream stream);

/* This thread's current device may have changed. */
void launch_forget_device(void);

/* Called on the session's thread: writes the counts to the page. False: nothing was launched since the last time. */
bool launch_tick(void);

/* In the child of a fork. */
void launch_reset(void);

#endif
