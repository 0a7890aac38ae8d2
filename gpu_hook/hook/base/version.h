/* The marker by which a self-check tells the shim from a real driver. */
#ifndef ALIQUOT_VERSION_H
#define ALIQUOT_VERSION_H

#define ALIQUOT_HOOK_MARKER "aliquot_hook_version"

/* Returns the protocol version that this hook speaks. */
__attribute__((visibility("default"))) unsigned aliquot_hook_version(void);

#endif
