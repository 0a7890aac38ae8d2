/* Memory nodes of graphs. The driver takes their memory when a graph is launched or uploaded, and
 * keeps it for the graphs of the device until it is trimmed. The hook charges what the driver has
 * reserved. */
#ifndef ALIQUOT_GRAPH_MEMORY_H
#define ALIQUOT_GRAPH_MEMORY_H

#include "accounting/devices.h"
#include "interpose/driver.h"

#include <stdbool.h>
#include <stdint.h>

/* The number of executable graphs that hold memory nodes; launches read it. */
extern uint32_t graph_memory_count __attribute__((visibility("hidden")));

static inline bool graph_memory_is_used(void)
{
    return __atomic_load_n(&graph_memory_count, __ATOMIC_RELAXED) != 0;
}

/* Note a graph that was instantiated; `needs`: the bytes of its allocation nodes on each device.
 * False: that took memory, over quota, and the caller destroys the graph. */
bool graph_memory_instantiated(CUgraphExec exec, const uint64_t needs[DEVICES_MAX]);

/* Launch or upload: charge, call the driver, and correct the charge to what it took. */
CUresult graph_memory_launch(CUgraphExec exec, CUstream stream,
                             CUresult (*real)(CUgraphExec, CUstream));

/* Destroy the graph. Its memory stays reserved, for other graphs. */
CUresult graph_memory_end(CUgraphExec exec, CUresult (*real)(CUgraphExec));

/* Refund what the driver has released, after a trim. */
void graph_memory_trimmed(int device);

/* Return the bytes that graphs had reserved of a device at the driver's last answer, which the
 * hook requests after each call that changes it. Calls no driver and takes no lock, so the
 * session's thread may call it. */
uint64_t graph_memory_reserved(int device);

/* Called when a context ended, which may have taken graph memory with it. */
void graph_memory_refresh(void);

/* Called in the child of a fork. */
void graph_memory_reset(void);

#endif
