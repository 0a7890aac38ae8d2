/* Driver functions that entry_points.txt does not name: those of a newer driver. The hook cannot
 * tell what they do with memory, so their calls pass the gate, and a process that called one is not
 * swapped from then on. */
#ifndef ALIQUOT_UNKNOWN_FUNCTIONS_H
#define ALIQUOT_UNKNOWN_FUNCTIONS_H

#include <stdint.h>

#define UNKNOWN_FUNCTIONS_MOST 64u /* spare forwarders; generate_entry_points.py makes as many */

/* Returns the gated forwarder to the function at `real`, which the driver handed out as `name`.
 * Once all forwarders are taken: `real` itself, and the process counts as one that called it. */
void *unknown_functions_gate(const char *name, void *real);

/* Return the gated forwarder to what dlsym found; `real` itself where that is no function of the
 * driver. */
void *unknown_functions_gate_export(const char *name, void *real);

/* Called by the gate, with the number of a spare forwarder. */
void *unknown_functions_target(unsigned spare);
void unknown_functions_note_call(unsigned spare);

/* Returns the first one that was called; NULL: none was. */
const char *unknown_functions_called(void);

/* Called on the session's thread: writes the name to the new page. */
void unknown_functions_registered(void);

/* Called in the child of a fork. */
void unknown_functions_reset(void);

#endif
