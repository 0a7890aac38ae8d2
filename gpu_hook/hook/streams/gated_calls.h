/* The slow ways of the generated forwarders. */
#ifndef ALIQUOT_GATED_CALLS_H
#define ALIQUOT_GATED_CALLS_H

#include <stdint.h>

/* Called by the forwarders; each returns the address to jump to. entry_gate_leave receives,
 * after the return, the value that entry_gate noted. */
void *entry_gate(unsigned index, uint32_t *is_marked);
void entry_gate_leave(uint32_t is_marked);
void *entry_deny(unsigned index);

#endif
