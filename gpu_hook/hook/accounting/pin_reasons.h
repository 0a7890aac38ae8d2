/* How many of a process's bytes could leave each device, and why the others stay: sums, kept as things are charged and
 * refunded. */
#ifndef ALIQUOT_PIN_REASONS_H
#define ALIQUOT_PIN_REASONS_H

#include "aliquot_protocol.h"

#include <stdbool.h>
#include <stdint.h>

#define STAYING_NOT 0u /* in place of a bit of enum aliquot_staying: it can leave */

/* `reason`: one bit of enum aliquot_staying, or STAYING_NOT. */
void staying_change(int device, uint32_t reason, int64_t bytes);

/* Of one reason. */
uint64_t staying_bytes(int device, uint32_t reason);

/* All reasons, as bits; with the sum of their bytes. */
uint32_t staying_reasons(int device, uint64_t *bytes);

/* Of the bytes that can leave: those that are out. */
void staying_change_out(int device, int64_t bytes);
uint64_t staying_out(int device);

/* Memory of this process is shared by legacy IPC: one more reason for what stays. */
void staying_note_ipc(void);
bool staying_has_ipc(void);

/* In the child of a fork. */
void staying_reset(void);

#endif
