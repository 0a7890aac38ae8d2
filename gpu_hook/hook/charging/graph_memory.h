/* Memory nodes of graphs. The driver takes their memory when a graph is launched or uploaded, and keeps it for the graphs
 * of the device until it is trimmed; what it has reserved is what is charged. */
#ifndef ALIQUOT_GRAPH_MEMORY_H
#define ALIQUOT_GRAPH_MEMORY_H

#include "accounting/devices.h"
#include "interpose/driver.h"

#include <stdbool.h>
#include <stdint.h>

/* Number of executable graphs that hold memory nodes; read by launches. */
extern uint32_t graph_memory_count __attribute__((visibility("hidden")));

static inline bool graph_memory_is_used(void)
{
    return __atomic_load_n(&graph_memory_count, __ATOMIC_RELAXED) != 0;
}

/* A graph was instantiated; `needs`: the bytes of its allocation nodes on each device. False: that took memory, over
 * quota, and the caller destroys it. */
bool graph_memory_instantiated(CUgraphExec exec, const uint64_t needs[DEVICES_MAX]);

/* Launches or uploads: charges, calls, and corrects the charge to what the driver took. */
CUresult graph_memory_launch(CUgraphExec exec, CUstream stream, CUresult (*real)(CUgraphExec, CUstream));

/* Destroys. The memory stays reserved, for other graphs. */
CUresult graph_memory_end(CUgraphExec exec, CUresult (*real)(CUgraphExec));

/* What graphs do not use was released. */
void graph_memory_trimmed(int device);

/* What graphs had reserved of a device when the driver was last asked: it is asked after whatever changes that. Asks no
 * driver, takes no lock: also for the session's thread. */
uint64_t graph_memory_reserved(int device);

/* A context ended, and may have taken graph memory with it. */
void graph_memory_refresh(void);

/* In the child of a fork. */
void graph_memory_reset(void);

#endif
